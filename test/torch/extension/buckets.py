# SPDX-License-Identifier: BSD-3-Clause
"""One of two processes that train by DDP in every way that touches its buckets.

    buckets.py BACKEND FOLDER WANTED

FOLDER/BACKEND-RANK.pt gets the weights at the end, by way; with FOLDER/gloo-RANK.pt there they have
to be the same bits. WANTED: "lent", if buckets lie in gradient memory, else "plain"."""
import gc
import os
import sys
import threading

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
WIDTH = 192


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.unused = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, data, with_unused=True):
        data = self.second(torch.relu(self.first(data)))
        return self.unused(data) if with_unused else data


# Buckets of one layer, and then of all.
WAYS = {
    "plain": {},
    "small buckets": {"bucket_cap_mb": 0.2},
    "views": {"bucket_cap_mb": 0.2, "gradient_as_bucket_view": True},
    "static graph": {"static_graph": True, "bucket_cap_mb": 0.2},
    "unused": {"find_unused_parameters": True, "gradient_as_bucket_view": True},
    "hook": {"bucket_cap_mb": 0.2},
}


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def train(way, models, steps=STEPS):
    """Several models in turns, with an accumulated step among the others."""
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(steps):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            batches = [torch.randn(8, WIDTH, generator=generator) for _ in range(2)]
            if way == "plain" and step == 2:
                with model.no_sync():
                    model(batches[0]).square().mean().backward()
            with_unused = way != "unused" or step % 2 == 0
            model(batches[1], with_unused).square().mean().backward()
            optimizer.step()


def made(way, **more):
    torch.manual_seed(5)
    model = DistributedDataParallel(Net(), **WAYS[way], **more)
    if way == "hook":
        model.register_comm_hook(None, fp16_compress_hook)
    return model


def stats():
    import gradwire.torch

    return gradwire.torch.stats()


def check_lent(lent, models, way):
    """Their buckets lie in gradient memory, so that a step copies nothing."""
    found = stats()
    if not lent:
        assert found["buckets"] == 0, (way, found)
        return
    assert found["buckets"] >= len(models) and found["bucket_bytes"] > 0, (way, found)
    if way in ("plain", "small buckets", "views", "static graph"):
        train("steady", models, 1)
        copied = stats()["library_copied_bytes"] - found["library_copied_bytes"]
        assert copied == 0, (way, copied)


def outlives(lent):
    """Gradients are parts of the buckets: they are there when the group, and then the client, has
    ended, and memory that they give back then is nobody's."""
    model = made("views")
    train("views", [model], 2)
    grad = next(model.parameters()).grad
    before = grad.clone()
    dist.barrier()
    dist.destroy_process_group()
    assert torch.equal(grad, before)
    grad.add_(1)
    del model
    gc.collect()
    dist.init_process_group("gradwire")
    if lent:
        grad.add_(1)
        assert torch.equal(grad, before.add(1).add(1))
        again = made("views")
        train("views", [again], 2)
        assert stats()["buckets"] > 0, stats()
        grad.add_(1)
        dist.all_reduce(grad)  # of another client's memory: copied, as torch's is
        dist.barrier()
    del grad


def forked():
    """A child has the memory as it was, and gives nothing back."""
    model = made("views")
    train("views", [model], 2)
    child = os.fork()
    if child == 0:
        del model
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    train("views", [model], 1)
    dist.barrier()


def others_are_not_asked():
    """Within gradient_buckets() other threads' tensors, and small ones, are torch's."""
    import gradwire.torch

    held = []
    before = stats()["buckets"]
    with gradwire.torch.gradient_buckets():
        with gradwire.torch.gradient_buckets():
            held.append(torch.empty(1 << 20))
        held.append(torch.zeros(100))
        thread = threading.Thread(target=lambda: held.append(torch.empty(1 << 20)))
        thread.start()
        thread.join()
        with torch.inference_mode():
            held.append(torch.ones(1 << 20))
    held.append(torch.empty(1 << 20))
    assert stats()["buckets"] == before + 2, stats()
    dist.all_reduce(held[-2])
    assert held[-2].eq(2).all()
    # Resized, a tensor is torch's.
    held[0].resize_(1 << 21).fill_(3)
    assert stats()["buckets"] == before + 1, stats()
    del held[:]
    assert stats()["buckets"] == before, stats()


def without_memory():
    """What the daemon has no memory for is torch's, and said once."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    pool, taken = backend.engine.pool, []
    while True:
        tensor = pool.tensor(torch.uint8, 8 << 20)
        if tensor is None:
            break
        taken.append(tensor)
    before = stats()
    if dist.get_rank() == 0:
        # The other process still has some to spare.
        model = made("views")
        assert stats()["buckets"] == before["buckets"], stats()
    taken.clear()
    if dist.get_rank() != 0:
        model = made("views")
    train("views", [model])
    slower = stats()["slower"]
    assert dist.get_rank() != 0 or any("bucket of DDP" in text for text in slower), slower
    return flat(model)


def main():
    backend, folder, wanted = sys.argv[1:4]
    if backend == "gradwire":
        import gradwire.torch
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank, lent, weights = dist.get_rank(), wanted == "lent", {}
    for way in WAYS:
        models = [made(way) for _ in range(2 if way == "small buckets" else 1)]
        train(way, models)
        weights[way] = torch.cat([flat(model) for model in models])
        if backend == "gradwire":
            check_lent(lent, models, way)
        del models
        gc.collect()
        if backend == "gradwire":
            assert stats()["buckets"] == 0, (way, stats())
    if backend == "gradwire":
        outlives(lent)
        gc.collect()
        forked()
        if lent:
            gc.collect()
            others_are_not_asked()
            assert torch.equal(without_memory(), weights["views"])
        gloo = torch.load(os.path.join(folder, "gloo-%d.pt" % rank))
        for way, ours in weights.items():
            assert torch.equal(ours, gloo[way]), way
        if rank == 0:
            print(stats())
    torch.save(weights, os.path.join(folder, "%s-%d.pt" % (backend, rank)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
