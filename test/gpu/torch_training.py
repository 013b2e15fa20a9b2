# SPDX-License-Identifier: BSD-3-Clause
"""Parts of torch_backend.py: training by DDP and by FSDP2 beside DDP over Gloo."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
MOST_OFF = 1e-5


def make_model(job):
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 511), torch.nn.GELU(),
        torch.nn.Linear(511, 10),
    )
    return model.to(job.device)


def whole(value):
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).detach()


def train(job, model):
    """[all] the parameters after a few steps, on the CPU."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + job.rank)
    data = torch.randn(32, 64, generator=generator, device="cpu").to(job.device)
    losses = []
    for _ in range(STEPS):
        loss = (model(data) - data[:, :10].sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert losses[-1] < losses[0], losses
    return torch.cat([whole(p).flatten() for p in model.parameters()]).cpu()


def by_ddp(job, group):
    model = DistributedDataParallel(make_model(job), process_group=group, bucket_cap_mb=0.5)
    return train(job, model)


def by_fsdp(job):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(dist.group.WORLD, job.device.type)
    model = make_model(job)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return train(job, fully_shard(model, mesh=mesh))


def compare(job, what, ours, right):
    """The largest difference of a parameter; the bits are the same on every rank."""
    everyone = [torch.empty_like(ours) for _ in range(job.world)]
    dist.all_gather(everyone, ours, group=job.gloo)
    assert all(torch.equal(each, ours) for each in everyone), "ranks differ"
    off = (ours - right).abs().max().item()
    assert off <= MOST_OFF, "off DDP over Gloo by %g" % off
    job.checks += 1
    job.steps.say("%s: equal bits on all ranks, off DDP over Gloo by %.1e at most" % (what, off))
    return off


def ddp(job):
    """How far DDP is off DDP over Gloo."""
    start = torch.cat([p.detach().flatten() for p in make_model(job).parameters()]).cpu()
    right = by_ddp(job, job.gloo)
    assert (right - start).abs().max() > 100 * MOST_OFF, "nothing was learned"
    return compare(job, "DDP", by_ddp(job, None), right)


def fsdp2(job):
    return compare(job, "FSDP2", by_fsdp(job), by_ddp(job, job.gloo))
