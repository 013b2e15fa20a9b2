#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""depths.py [options] SOCKET...: a client on each daemon, in rank order. Each rank has posted as
many ops as its depth before it waits for the oldest, which a rank of depth 1 does for every op.
With --mixed the ops are all collectives, of all sizes. Every bit of every op is compared with the
reference. Exit 1 at the first difference."""

import argparse
import sys
import time

import numpy as np

from reference import reference
from ring import Ring, WAIT_S, check, random_values

EMPTY_EVERY = 5  # so often an op has no elements
KINDS = ("all_reduce", "reduce_scatter", "broadcast", "all_gather", "all_reduce", "reduce",
         "barrier", "all_to_all", "all_reduce", "gather", "scatter")
# One hop, two, the ring, by way of each; a prime number of them, so that all meet all kinds.
MIXED_COUNTS = (16, 0, 2_000, 30_000, 1, 9_001, 100)


def run(ring, depths, ops, count):
    generator = np.random.default_rng(11)
    counts = [0 if op % EMPTY_EVERY == EMPTY_EVERY - 1 else count for op in range(ops)]
    inputs = [ring.make_inputs(generator, n, "fp32") for n in counts]

    def shared_array(rank, n):
        memory = ring.clients[rank][0].allocate(max(4 * n, 4))
        return memory.array("uint8")[:4 * n].view(np.float32)

    buffers = [[[shared_array(rank, n) for n in counts] for rank in range(ring.nranks)]
               for _ in range(2)]
    works = [[] for _ in range(ring.nranks)]
    for op in range(ops):
        for rank, depth in enumerate(depths):
            while len(works[rank]) < min(op + depth, ops):
                at = len(works[rank])
                source, target = buffers[0][rank][at], buffers[1][rank][at]
                source[:] = inputs[at][rank][0]
                works[rank].append(ring.groups[rank][0].all_reduce(source, "sum", out=target))
        # The ranks that wait for each op come first: the others have more under way meanwhile.
        for rank in sorted(range(ring.nranks), key=lambda r: depths[r]):
            works[rank][op].wait(WAIT_S)
        outputs = [[buffers[1][rank][op]] for rank in range(ring.nranks)]
        check(outputs, reference.all_reduce(inputs[op], "fp32", "sum"), f"op {op + 1}")
    print(f"{ops} ops of {count} floats or none, depths {depths}: the reference's bits", flush=True)


class MixedOp:
    """One op of any kind, of a process a rank: its inputs, and what each rank has to get."""

    def __init__(self, ring, generator, number):
        self.kind = KINDS[number % len(KINDS)]
        count = MIXED_COUNTS[number % len(MIXED_COUNTS)]
        self.datatype = ("fp32", "bf16", "int32")[number % 3]
        self.dtype = reference.NUMPY_TYPES[self.datatype]
        self.redop = ("sum", "max", "avg")[number // 2 % 3]
        self.root = number % ring.nranks
        self.what = f"op {number + 1}, {self.kind} of {count} {self.datatype}"
        ranks = range(ring.nranks)
        wide = self.kind in ("reduce_scatter", "all_to_all", "scatter")
        size = count * ring.nranks if wide else count
        self.inputs = [random_values(generator, size, self.datatype) for _ in ranks]
        given = [[values] for values in self.inputs]
        self.count = count
        self.expected = [None] * ring.nranks
        if self.kind == "all_reduce":
            self.expected = [reference.all_reduce(given, self.datatype, self.redop)] * ring.nranks
        elif self.kind == "reduce":
            self.expected[self.root] = reference.reduce(given, self.datatype, self.redop, self.root)
        elif self.kind == "reduce_scatter":
            sums = reference.reduce_scatter(given, self.datatype, self.redop)
            self.expected = [blocks[0] for blocks in sums]
        elif self.kind == "broadcast":
            self.expected = [self.inputs[self.root]] * ring.nranks
        elif self.kind == "all_gather":
            self.expected = [np.concatenate(self.inputs)] * ring.nranks
        elif self.kind == "gather":
            self.expected[self.root] = np.concatenate(self.inputs)
        elif self.kind == "scatter":
            self.expected = [self.block(self.inputs[self.root], rank) for rank in ranks]
        elif self.kind == "all_to_all":
            self.expected = [np.concatenate([self.block(values, rank) for values in self.inputs])
                             for rank in ranks]
        self.works = [None] * ring.nranks

    def block(self, values, rank):
        return values[rank * self.count:(rank + 1) * self.count]

    def post(self, group, rank):
        value = self.inputs[rank].copy()
        want = self.expected[rank]
        out = None if want is None else np.full(want.nbytes, 0xA5, np.uint8).view(self.dtype)
        if self.kind in ("all_reduce", "reduce"):
            root = (self.root,) if self.kind == "reduce" else ()
            work = getattr(group, self.kind)(value, *root, self.redop, dtype=self.datatype)
        elif self.kind == "reduce_scatter":
            work = group.reduce_scatter(value, out, op=self.redop, dtype=self.datatype)
        elif self.kind == "broadcast":
            work = group.broadcast(value, self.root, dtype=self.datatype)
        elif self.kind == "all_gather":
            work = group.all_gather(value, out, dtype=self.datatype)
        elif self.kind == "gather":
            work = group.gather(value, self.root, out=out)
        elif self.kind == "scatter":
            work = group.scatter(value if rank == self.root else None, out, self.root)
        elif self.kind == "all_to_all":
            work = group.all_to_all(value, out)
        else:
            work = group.barrier()
        self.works[rank] = work

    def finish(self, rank):
        got = self.works[rank].wait(WAIT_S)
        self.works[rank] = None
        if self.expected[rank] is not None:
            check([[got]], self.expected[rank], f"{self.what}, rank {rank}")


def run_mixed(ring, depths, ops, late_s):
    """The last rank posts nothing before the others have posted to their depths, and `late_s`."""
    generator = np.random.default_rng(12)
    mixed = [MixedOp(ring, generator, number) for number in range(ops)]
    posted = [0] * ring.nranks
    for number in range(ops):
        for rank, depth in enumerate(depths):
            if number == 0 and rank == ring.nranks - 1:
                time.sleep(late_s)
            while posted[rank] < min(number + depth, ops):
                mixed[posted[rank]].post(ring.groups[rank][0], rank)
                posted[rank] += 1
        for rank in sorted(range(ring.nranks), key=lambda r: depths[r]):
            mixed[number].finish(rank)
    print(f"{ops} ops of all kinds, depths {depths}, the last rank {late_s} s late: the "
          "reference's bits", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--depths", required=True, help="one for each rank, comma-separated")
    parser.add_argument("--counts", default="50000", help="elements, comma-separated")
    parser.add_argument("--ops", type=int, default=16)
    parser.add_argument("--mixed", action="store_true", help="all collectives, of sizes of its own")
    parser.add_argument("--late", type=float, default=0.5,
                        help="of --mixed: seconds after which the last rank posts its first op")
    arguments = parser.parse_args()
    depths = [int(d) for d in arguments.depths.split(",")]
    if arguments.mixed:
        with Ring(arguments.sockets) as ring:
            run_mixed(ring, depths, arguments.ops, arguments.late)
        return 0
    for count in [int(c) for c in arguments.counts.split(",")]:
        with Ring(arguments.sockets) as ring:
            run(ring, depths, arguments.ops, count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
