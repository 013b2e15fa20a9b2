# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that trains in the ways that train.py does not: more.py WAY...

Each way trains a few steps on gradwire and on a group of Gloo's, from the same start: the losses
agree within rounding, and the weights are the same bits on every rank of gradwire's."""
import os
import sys

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch

STEPS = 4


def make_model(width=64):
    torch.manual_seed(11)
    return torch.nn.Sequential(
        torch.nn.Linear(32, width), torch.nn.GELU(), torch.nn.Linear(width, width + 1),
        torch.nn.GELU(), torch.nn.Linear(width + 1, 8),
    )


def batches():
    generator = torch.Generator().manual_seed(50 + dist.get_rank())
    for _ in range(STEPS):
        data = torch.randn(16, 32, generator=generator)
        yield data, data[:, :8].cos()


def steps(model, optimizer, gloo):
    """The mean loss over all processes of each step."""
    losses = []
    for data, wanted in batches():
        loss = (model(data) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, group=gloo)
        losses.append(total.item() / dist.get_world_size())
    return losses


def fsdp1(group, gloo):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FullyShardedDataParallel(
        make_model(), process_group=group, device_id=torch.device("cpu"),
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
    )
    losses = steps(model, torch.optim.AdamW(model.parameters(), lr=1e-2), gloo)
    with FullyShardedDataParallel.summon_full_params(model):
        return losses, torch.cat([p.detach().clone().flatten() for p in model.parameters()])


def zero(group, gloo):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(make_model(), process_group=group, bucket_cap_mb=0.01)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, process_group=group, lr=1e-2
    )
    losses = steps(model, optimizer, gloo)
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        assert len(optimizer.state_dict()["state"]) == 6
    return losses, torch.cat([p.detach().clone().flatten() for p in model.parameters()])


def compiled(group, gloo):
    """torch.compile over functional collectives, and of a DDP step."""
    from torch.distributed import _functional_collectives as functional

    def many(x):
        y = functional.all_reduce(x * 2, "sum", group)
        whole = functional.all_gather_tensor(y + 1, 0, group)
        return functional.reduce_scatter_tensor(whole, "sum", 0, group)

    x = torch.arange(64.0) + dist.get_rank()
    right = many(x)
    got = torch.compile(many, backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(got, right), (got, right)
    model = DistributedDataParallel(make_model(), process_group=group)
    model = torch.compile(model, backend="aot_eager")
    losses = steps(model, torch.optim.AdamW(model.parameters(), lr=1e-2), gloo)
    return losses, torch.cat([p.detach().clone().flatten() for p in model.parameters()])


def pipeline(group, gloo):
    """A stage of the model on each process, by the 1F1B schedule. The last knows the loss."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    stages, rank = dist.get_world_size(), dist.get_rank()
    whole = make_model()
    cuts = [len(whole) * stage // stages for stage in range(stages + 1)]
    part = whole[cuts[rank]:cuts[rank + 1]]
    stage = PipelineStage(part, rank, stages, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(
        stage, 4, loss_fn=lambda out, wanted: (out - wanted).square().mean()
    )
    # A stage may be a GELU alone.
    optimizer = torch.optim.AdamW([*part.parameters(), torch.zeros(1)], lr=1e-2)
    losses = []
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        data = torch.randn(16, 32, generator=generator)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(data)
        elif rank < stages - 1:
            schedule.step()
        else:
            found = []
            schedule.step(target=data[:, :8].cos(), losses=found)
            losses.append(sum(each.item() for each in found) / len(found))
        optimizer.step()
    return losses, torch.zeros(1)


def dtensor(group, gloo):
    """Redistribution between placements, and operators on what is cut."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),)) if group is None else (
        dist.device_mesh.DeviceMesh.from_group(group, "cpu"))
    whole = torch.randn(13, 12, generator=torch.Generator().manual_seed(1))  # 13: an uneven cut
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(rows.full_tensor(), whole)
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.full_tensor(), whole)
    assert torch.equal(columns.redistribute(mesh, [Replicate()]).to_local(), whole)
    torch.testing.assert_close((rows.T @ rows).full_tensor(), whole.T @ whole)
    torch.testing.assert_close(rows.softmax(0).full_tensor(), whole.softmax(0))
    assert torch.equal(rows.max().full_tensor(), whole.max())
    torch.testing.assert_close(columns.sum(1).full_tensor(), whole.sum(1))
    part = DTensor.from_local(whole.clone(), mesh, [Partial()])
    total = part.redistribute(mesh, [Replicate()]).to_local()
    torch.testing.assert_close(total, whole * dist.get_world_size())
    cut = part.redistribute(mesh, [Shard(0)])
    torch.testing.assert_close(cut.full_tensor(), total)
    return [], total


WAYS = {"fsdp1": fsdp1, "zero": zero, "compiled": compiled, "pipeline": pipeline,
        "dtensor": dtensor}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    gloo = dist.new_group(backend="gloo")
    ours = dist.group.WORLD
    for name in sys.argv[1:] or WAYS:
        losses, weights = WAYS[name](ours, gloo)
        everyone = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, weights, group=gloo)
        assert all(torch.equal(each, weights) for each in everyone), name
        right, _ = WAYS[name](gloo, gloo)
        a, b = torch.tensor(losses), torch.tensor(right)
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        if losses:
            assert losses[-1] < losses[0], losses
        off = (a - b).abs().max().item() if losses else 0.0
        print("%s: equal bits on all ranks, off Gloo's loss by %.1e" % (name, off), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
