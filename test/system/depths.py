#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""depths.py [options] SOCKET...: a client on each daemon, in rank order. Each rank has posted as
many ops as its depth before it waits for the oldest, which a rank of depth 1 does for every op.
Every bit of every op is compared with the reference. Exit 1 at the first difference."""

import argparse
import sys

import numpy as np

from reference import reference
from ring import Ring, WAIT_S, check

EMPTY_EVERY = 5  # so often an op has no elements


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--depths", required=True, help="one for each rank, comma-separated")
    parser.add_argument("--counts", default="50000", help="elements, comma-separated")
    parser.add_argument("--ops", type=int, default=16)
    arguments = parser.parse_args()
    depths = [int(d) for d in arguments.depths.split(",")]
    for count in [int(c) for c in arguments.counts.split(",")]:
        with Ring(arguments.sockets) as ring:
            run(ring, depths, arguments.ops, count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
