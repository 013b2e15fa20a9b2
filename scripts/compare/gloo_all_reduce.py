#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed.all_reduce over Gloo, timed as gradwire-perf times its transports: warm-up ops,
then each op by itself, back to back, fp32 sum; p50 and p99 on rank 0. In place, as torch has it."""

import argparse
import json
import math
import mmap
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from torch_pattern import count_wrong, fill


def allocate(count):
    """Pages as gradwire-perf gives its TCP ring: huge where the kernel has them, all touched."""
    pages = mmap.mmap(-1, max(count * 4, 4096))
    if hasattr(pages, "madvise"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    tensor = torch.frombuffer(pages, dtype=torch.float32, count=count)
    tensor.zero_()
    return tensor


def percentile(ordered, share):
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def measure(tensor, iterations, warmup, rank, nranks):
    fill(tensor, rank)
    for _ in range(warmup):
        dist.all_reduce(tensor)
    dist.barrier()
    cpu = time.process_time()
    times = []
    for _ in range(iterations):
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - begin)
    used = time.process_time() - cpu
    # The timed ops have summed their own sums: what is checked is one more.
    fill(tensor, rank)
    dist.all_reduce(tensor)
    wrong = torch.tensor([count_wrong(tensor, nranks)])
    dist.all_reduce(wrong)
    times.sort()
    size = tensor.numel() * 4
    return {
        "size_bytes": size,
        "iterations": iterations,
        "time_p50_us": percentile(times, 0.5) * 1e6,
        "time_p99_us": percentile(times, 0.99) * 1e6,
        "time_min_us": times[0] * 1e6,
        "cpu_s_per_gb": used / (size * iterations / 1e9),
        "wrong": int(wrong),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sizes", nargs="+", help="SIZE:ITERATIONS, in bytes")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nranks", type=int, required=True)
    parser.add_argument("--master", required=True, help="ADDRESS:PORT of rank 0")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{arguments.master}", rank=arguments.rank,
        world_size=arguments.nranks, timeout=timedelta(seconds=60),
    )
    plans = [tuple(int(n) for n in plan.split(":")) for plan in arguments.sizes]
    memory = allocate(max(size for size, _ in plans) // 4)
    results = [
        measure(memory[: size // 4], iterations, arguments.warmup, arguments.rank,
                arguments.nranks)
        for size, iterations in plans
    ]
    dist.barrier()
    if arguments.rank == 0:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"program": "gloo_all_reduce", "torch": torch.__version__,
                       "nranks": arguments.nranks, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
