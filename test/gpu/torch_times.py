# SPDX-License-Identifier: BSD-3-Clause
"""Parts of torch_backend.py: how long calls and a step of DDP take, on gradwire and on Gloo in
turns. Each time is from an idle GPU to an idle GPU. Of CUDA tensors Gloo is given only all_reduce:
for the others it gets copies on the CPU, made and brought back within the time."""
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SIZES = {8: 40, 64 << 10: 40, 1 << 20: 20, 64 << 20: 4}  # bytes of the larger buffer, and times
NAMES = {8: "8 B", 64 << 10: "64 KB", 1 << 20: "1 MB", 64 << 20: "64 MB"}
CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
LAYERS, WIDTH = 16, 1024  # 64 MB of fp32
DDP_STEPS = 6


def plain(job, name, group, larger, smaller):
    if name == "all_reduce":
        dist.all_reduce(larger, group=group)
    elif name == "all_gather":
        dist.all_gather_into_tensor(larger, smaller, group=group)
    elif name == "reduce_scatter":
        dist.reduce_scatter_tensor(smaller, larger, group=group)
    elif name == "all_to_all":
        dist.all_to_all_single(smaller, larger, group=group)
    else:
        ops = [dist.isend(larger, (job.rank + 1) % job.world, group=group),
               dist.irecv(smaller, (job.rank - 1) % job.world, group=group)]
        for work in ops:
            work.wait()


def on_host(job, name, larger, smaller):
    """The same by Gloo, of copies on the CPU."""
    given, got = (smaller, larger) if name == "all_gather" else (larger, smaller)
    sent, received = given.cpu(), torch.empty(got.shape, dtype=got.dtype, device="cpu")
    pair = (received, sent) if name == "all_gather" else (sent, received)
    plain(job, name, job.gloo, *pair)
    got.copy_(received)


def gloo_takes(job, name):
    return name == "all_reduce" or not job.gpu.is_gpu


def times_of(job, call, times):
    """Seconds of each, after two that do not count."""
    found = []
    for i in range(times + 2):
        job.gpu.synchronize()
        dist.barrier(group=job.gloo)
        began = time.perf_counter()
        call()
        job.gpu.synchronize()
        if i >= 2:
            found.append(time.perf_counter() - began)
    return found


def calls(job, names):
    rows = []
    for name in names:
        for size, times in SIZES.items():
            count = max(size // 4 // job.world * job.world, job.world)
            small = count if name in ("all_to_all", "send_recv") else count // job.world
            larger = torch.zeros(count, device=job.device)
            smaller = torch.zeros(small, device=job.device)
            row = {"call": name, "bytes": size, "gloo_by_copies": not gloo_takes(job, name)}
            ways = {
                "gradwire": lambda: plain(job, name, None, larger, smaller),
                "gloo": (lambda: plain(job, name, job.gloo, larger, smaller))
                if gloo_takes(job, name) else (lambda: on_host(job, name, larger, smaller)),
            }
            found = {way: [] for way in ways}
            for _ in range(2):
                for way, call in ways.items():
                    found[way] += times_of(job, call, times // 2)
            row.update({way + "_us": round(statistics.median(s) * 1e6, 1)
                        for way, s in found.items()})
            rows.append(row)
            job.steps.say("%-15s %6s  gradwire %10.0f us  Gloo %10.0f us%s" % (
                name, NAMES[size], row["gradwire_us"], row["gloo_us"],
                " (by copies on the CPU)" if row["gloo_by_copies"] else ""))
    return rows


def ddp_step(job):
    """Milliseconds of a step of a model of 64 MB, and of one that sums nothing."""
    def make_model():
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
        return torch.nn.Sequential(*layers).to(job.device)

    data = torch.randn(64, WIDTH, device=job.device)
    models = {
        "gradwire": DistributedDataParallel(make_model()),
        "gloo": DistributedDataParallel(make_model(), process_group=job.gloo),
        "alone": make_model(),
    }
    found = {way: [] for way in models}
    for i in range(DDP_STEPS):
        for way, model in models.items():
            model.zero_grad(set_to_none=False)
            job.gpu.synchronize()
            dist.barrier(group=job.gloo)
            began = time.perf_counter()
            model(data).square().mean().backward()
            job.gpu.synchronize()
            if i >= 2:
                found[way].append(time.perf_counter() - began)
    result = {way + "_ms": round(statistics.median(s) * 1e3, 2) for way, s in found.items()}
    job.steps.say("a step of DDP, 64 MB: %s" % ", ".join("%s %.1f ms" % (
        key[:-3], value) for key, value in result.items()))
    return result
