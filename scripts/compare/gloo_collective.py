#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A collective of torch.distributed over Gloo, timed as gradwire-perf times its transports: warm-up
ops, then each op by itself, back to back, fp32 sum, root 0; p50 and p99 on rank 0. A size is that
of the larger buffer, as in nccl-tests. All-reduce, reduce and broadcast are in place, because torch
has nothing else."""

import argparse
import json
import math
import mmap
import os
import sys
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


class Op:
    """One collective on `count` elements of its larger buffer."""

    def __init__(self, name, count, memory, rank, nranks):
        self.name, self.rank, self.nranks = name, rank, nranks
        self.part = count // nranks
        if name in ("reduce-scatter", "all-gather", "all-to-all"):
            count = self.part * nranks
        self.input, self.output = memory[0][:count], memory[1][:count]
        if name == "all-gather":
            self.input = self.input[: self.part]
        if name == "reduce-scatter":
            self.output = self.output[: self.part]
        self.parts = list(self.output.chunk(nranks)) if name == "all-gather" else []
        # An older torch has these under names of their own.
        self.reduce_scatter = getattr(dist, "reduce_scatter_tensor", None)
        self.bytes = count * 4
        fill(self.input, rank)

    def run(self):
        if self.name == "all-reduce":
            dist.all_reduce(self.input)
        elif self.name == "reduce":
            dist.reduce(self.input, 0)
        elif self.name == "broadcast":
            dist.broadcast(self.input, 0)
        elif self.name == "reduce-scatter":
            self.reduce_scatter(self.output, self.input)
        elif self.name == "all-gather":
            dist.all_gather(self.parts, self.input)
        elif self.name == "all-to-all":
            dist.all_to_all_single(self.output, self.input)
        else:
            sent = dist.isend(self.input, (self.rank + 1) % self.nranks)
            dist.recv(self.output, (self.rank - 1) % self.nranks)
            sent.wait()

    def count_wrong(self):
        """Of one more run, since those that sum in place have summed their own sums."""
        fill(self.input, self.rank)
        self.run()
        everyone = range(self.nranks)
        before = (self.rank - 1) % self.nranks
        start = self.rank * self.part
        if self.name == "all-reduce" or (self.name == "reduce" and self.rank == 0):
            return count_wrong(self.input, everyone)
        if self.name == "broadcast":
            return count_wrong(self.input, [0])
        if self.name == "reduce-scatter":
            return count_wrong(self.output, everyone, start)
        if self.name == "all-gather":
            return sum(count_wrong(part, [rank]) for rank, part in enumerate(self.parts))
        if self.name == "all-to-all":
            return sum(count_wrong(part, [rank], start)
                       for rank, part in enumerate(self.output.chunk(self.nranks)))
        return count_wrong(self.output, [before]) if self.name == "send-recv" else 0


def measure(op, iterations, warmup):
    for _ in range(warmup):
        op.run()
    dist.barrier()
    cpu = time.process_time()
    times = []
    for _ in range(iterations):
        begin = time.perf_counter()
        op.run()
        times.append(time.perf_counter() - begin)
    used = time.process_time() - cpu
    wrong = torch.tensor([op.count_wrong()])
    dist.all_reduce(wrong)
    times.sort()
    return {
        "size_bytes": op.bytes,
        "iterations": iterations,
        "time_p50_us": percentile(times, 0.5) * 1e6,
        "time_p99_us": percentile(times, 0.99) * 1e6,
        "time_min_us": times[0] * 1e6,
        "cpu_s_per_gb": used / (op.bytes * iterations / 1e9),
        "wrong": int(wrong),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sizes", nargs="+", help="SIZE:ITERATIONS, in bytes")
    parser.add_argument("--collective", default="all-reduce")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nranks", type=int, required=True)
    parser.add_argument("--master", required=True, help="ADDRESS:PORT of rank 0")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # Debian 13's torch 2.6 asks for libuv, which it was built without.
    os.environ.setdefault("USE_LIBUV", "0")
    dist.init_process_group(
        "gloo", init_method=f"tcp://{arguments.master}", rank=arguments.rank,
        world_size=arguments.nranks, timeout=timedelta(seconds=60),
    )
    plans = [tuple(int(n) for n in plan.split(":")) for plan in arguments.sizes]
    largest = max(size for size, _ in plans) // 4
    memory = (allocate(largest), allocate(largest))
    results = [
        measure(Op(arguments.collective, size // 4, memory, arguments.rank, arguments.nranks),
                iterations, arguments.warmup)
        for size, iterations in plans
    ]
    dist.barrier()
    if arguments.rank == 0:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"program": "gloo_collective", "torch": torch.__version__,
                       "nranks": arguments.nranks, "results": results}, file, indent=1)
    leave(arguments.rank, arguments.nranks)


def leave(rank, nranks):
    """Ends this process without Gloo's destructors; rank 0, which serves the store, is the last.

    So no connection closes while the other rank still waits on it: in CI a rank of Gloo's once
    aborted, and said no more.
    """
    store = dist.distributed_c10d._get_default_store()
    store.set(f"left-{rank}", "yes")
    if rank == 0:
        store.wait([f"left-{other}" for other in range(nranks)])
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
