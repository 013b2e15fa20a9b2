# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that reduces what daemons do not reduce: sparse tensors, bit for bit as on
Gloo; int16, as numpy does it; and fp8 and others, which are refused by name."""
import numpy as np
import torch
import torch.distributed as dist

import gradwire.torch
from calls import run

REDOPS = {"SUM": np.add, "AVG": np.add, "MIN": np.minimum, "MAX": np.maximum,
          "PRODUCT": np.multiply, "BAND": np.bitwise_and, "BOR": np.bitwise_or,
          "BXOR": np.bitwise_xor}


# ---- sparse tensors

def random_sparse(seed, shape, sparse_dims, count, dtype):
    """With places that come more than once."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.stack([torch.randint(0, size, (count,), generator=generator)
                           for size in shape[:sparse_dims]])
    values = torch.randn(count, *shape[sparse_dims:], generator=generator)
    values = (values * 100).to(dtype) if not dtype.is_complex else values.to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)


def sparse(job):
    rank, world = job.rank, job.world
    for number, (shape, dims, counts, dtype) in enumerate((
        ((50, 8), 1, [20, 30, 1], torch.float32),
        ((50, 8), 1, [0, 7, 0], torch.float32),
        ((50, 8), 1, [0, 0, 0], torch.float32),
        ((9, 7, 5), 3, [400, 300, 200], torch.float64),
        ((1000, 3), 2, [70, 71, 72], torch.bfloat16),
        ((10, 4, 2), 1, [5, 6, 7], torch.int64),
        ((64,), 1, [9, 9, 9], torch.complex64),
        ((3000, 300), 1, [1000, 900, 2000], torch.float32),
    )):
        def made():
            return random_sparse(10 * number + rank, shape, dims, counts[rank % 3], dtype)

        def call(group):
            tensor = made()
            dist.all_reduce(tensor, group=group)
            return [tensor.indices(), tensor.values(), tensor.shape, tensor.is_coalesced()]

        job.same("sparse all-reduce %d" % number, call)

        def later(group):
            tensor = made()
            work = dist.all_reduce(tensor, group=group, async_op=True)
            work.wait()
            result = work.get_future().wait()
            result = result[0] if isinstance(result, list) else result
            return [t for s in (tensor.detach(), result.detach())
                    for t in (s.coalesce().indices(), s.coalesce().values())]

        job.same("sparse all-reduce %d, asynchronous" % number, later)
    # What Gloo refuses is refused, and the group goes on. Gloo ends processes if sizes differ.
    def refused(name, call, by_gloo=True):
        if by_gloo:
            job.same(name, call)
        assert job.outcome(call, job.ours) == "refused", name
        job.goes_on(name)

    one = random_sparse(rank, (5, 2), 1, 3, torch.float32)
    refused("max of sparse tensors", lambda g: dist.all_reduce(one, dist.ReduceOp.MAX, group=g))
    refused("sparse dimensions that differ", lambda g: dist.all_reduce(
        random_sparse(rank, (5, 2), 1 + (rank == 0), 3, torch.float32), group=g), False)
    refused("sizes that differ", lambda g: dist.all_reduce(
        random_sparse(rank, (5 + rank, 2), 1, 3, torch.float32), group=g), False)
    refused("a sparse broadcast", lambda g: dist.broadcast(one, 0, group=g))
    alone = [dist.new_group([r]) for r in range(world)][rank]
    tensor = random_sparse(1, (5, 2), 1, 9, torch.float32)
    right = tensor.clone().coalesce()
    dist.all_reduce(tensor, group=alone)
    assert torch.equal(tensor.to_dense(), right.to_dense())
    dist.destroy_process_group(alone)


def embeddings(job):
    """DDP with gradients that are sparse: the same model as on Gloo."""
    def train(group):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Embedding(200, 16, sparse=True),
                                    torch.nn.Flatten(), torch.nn.Linear(64, 4))
        ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(job.rank)
        for _ in range(6):
            rows = torch.randint(0, 200, (8, 4), generator=generator)
            loss = ddp(rows).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [model[0].weight.detach()]

    ours, right = train(job.ours), train(job.gloo)
    # The linear layer's gradients are summed in another order, and change the embedding's.
    assert torch.allclose(ours[0], right[0], rtol=1e-5, atol=1e-6)
    said = [torch.zeros_like(ours[0]) for _ in range(job.world)]
    dist.all_gather(said, ours[0])
    assert all(torch.equal(other, ours[0]) for other in said)
    job.checks += 1


# ---- int16

def inputs(rank, count):
    generator = np.random.default_rng(100 + rank)
    return generator.integers(-32768, 32768, count, dtype=np.int16)


def right_of(world, count, redop):
    with np.errstate(over="ignore"):
        total = inputs(0, count)
        for rank in range(1, world):
            total = REDOPS[redop](total, inputs(rank, count))
    if redop == "AVG":
        total = np.trunc(total.astype(np.float64) / world).astype(np.int16)
    assert total.dtype == np.int16
    return torch.from_numpy(total)


def int16(job):
    rank, world = job.rank, job.world
    for redop in REDOPS:
        op = getattr(dist.ReduceOp, redop)
        for count in (world, 60 * world, 30_000 * world):
            own, right = torch.from_numpy(inputs(rank, count)), right_of(world, count, redop)
            part = right.view(world, -1)[rank]
            tensor = own.clone()
            dist.all_reduce(tensor, op)
            assert torch.equal(tensor, right), (redop, count)
            table = torch.zeros(count, 2, dtype=torch.int16)
            table[:, 0] = own
            dist.all_reduce(table[:, 0], op)
            assert torch.equal(table[:, 0], right) and not table[:, 1].any()
            tensor, root = own.clone(), world - 1
            dist.reduce(tensor, root, op)
            assert torch.equal(tensor, right if rank == root else own)
            out = torch.zeros_like(part)
            dist.reduce_scatter_tensor(out, own, op)
            assert torch.equal(out, part)
            dist.reduce_scatter(out.zero_(), list(own.view(world, -1)), op)
            assert torch.equal(out, part)
            tensors = [own.clone(), own.clone()]
            dist.all_reduce_coalesced([*tensors, tensors[0]], op)
            assert all(torch.equal(tensor, right) for tensor in tensors)
            work = dist.all_reduce(own, op, async_op=True)
            work.wait()
            assert torch.equal(work.get_future().wait()[0], right)
            job.checks += 6
    assert any("int16" in what for what in gradwire.torch.stats()["slower"])


def refused_by_name(job):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32):
        name = str(dtype).replace("torch.", "")
        for call in (
            lambda t: dist.all_reduce(t),
            lambda t: dist.reduce(t, 0),
            lambda t: dist.reduce_scatter_tensor(t[:2], t[:2 * job.world]),
            lambda t: dist.all_reduce_coalesced([t, t]),
        ):
            text = ""
            try:
                call(torch.zeros(2 * job.world, dtype=dtype))
            except RuntimeError as error:
                text = str(error)
            assert "gradwire does not reduce %s by sum" % name in text, (name, text)
            job.goes_on(name)


if __name__ == "__main__":
    run(sparse, embeddings, int16, refused_by_name)
