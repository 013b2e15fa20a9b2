# SPDX-License-Identifier: BSD-3-Clause
"""One process of a training job: a small model by DDP, FSDP2 or HSDP, with gradwire or Gloo.

    train.py BACKEND LAYOUT FOLDER [--load FOLDER] [--tensor-parallel]

FOLDER/BACKEND-LAYOUT-RANK.pt gets the loss of each step and the whole weights at the end;
FOLDER/checkpoint, with fsdp on gradwire, what torch.distributed.checkpoint saves. ``load`` as the
layout reads that with two processes' layout, DDP's, and compares."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

STEPS = 6


def make_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 255), torch.nn.GELU(),
        torch.nn.Linear(255, 10),
    )


def distributed(layout):
    model = make_model()
    world = dist.get_world_size()
    if layout == "ddp":
        return DistributedDataParallel(model, bucket_cap_mb=0.1)
    if layout == "fsdp":
        mesh = init_device_mesh("cpu", (world,))
    else:
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole(value):
    return (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()


def weights(model):
    return torch.cat([whole(p).flatten() for p in model.parameters()])


def train(model, rank):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(STEPS):
        data = torch.randn(32, 64, generator=generator)
        wanted = data[:, :10].sin()
        loss = (model(data) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / dist.get_world_size())
    return losses


def tensor_parallel(folder, backend):
    """A layer cut over all processes gives what it gives whole."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plain, model = make_model()[:3], make_model()[:3]
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    data = torch.randn(8, 64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(model(data), plain(data))
    model(data).square().sum().backward()
    plain(data).square().sum().backward()
    for mine, right in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(whole(mine.grad), right.grad, rtol=1e-4, atol=1e-4)


def main():
    backend, layout, folder = sys.argv[1:4]
    if backend == "gradwire":
        import gradwire.torch
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank = dist.get_rank()
    saved = os.path.join(folder, "checkpoint")
    if layout == "load":
        model = DistributedDataParallel(make_model())
        state = {"model": model.module.state_dict()}
        checkpoint.load(state, checkpoint_id=saved)
        model.module.load_state_dict(state["model"])
        right = torch.load(os.path.join(folder, "gradwire-fsdp-0.pt"))["weights"]
        assert torch.equal(weights(model), right)
    elif layout == "tensor":
        tensor_parallel(folder, backend)
    else:
        model = distributed(layout)
        losses = train(model, rank)
        result = {"losses": losses, "weights": weights(model)}
        torch.save(result, os.path.join(folder, "%s-%s-%d.pt" % (backend, layout, rank)))
        if (backend, layout) == ("gradwire", "fsdp"):
            checkpoint.save({"model": model.state_dict()}, checkpoint_id=saved)
        if rank == 0:
            print("%s, %s: loss %s" % (backend, layout, ", ".join("%.6f" % x for x in losses)))
    if backend == "gradwire" and rank == 0:
        print(gradwire.torch.stats())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
