#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""direct.py [options] SOCKET...: two groups on the same daemons, one beside the other: in the first
the ranks have the order of the sockets, and small all-reduces go in one hop (or, by --shape, are
gathered); in the second the last socket's daemon is rank 0, which has transport.direct_kib = 0, so
they go round the ring. Each op runs in both with the same inputs by rank; every bit is compared
with the reference's. Then ops of both shapes are posted one behind the other. Exit 1 at the first
difference, or if a group's ops did not take the shape that they should."""

import argparse
import sys

import numpy as np

import gradwire
from reference import reference
from ring import WAIT_S, Ring, check


def ops_of(ring, sockets, shape):
    """Of the group, over all its daemons and lanes."""
    total = 0
    for socket in sockets:
        for group in gradwire.daemon_status(socket)["groups"]:
            if int(group["group_id"], 16) == ring.group_id:
                total += sum(shard["counters"][f"ops_{shape}"] for shard in group["shards"])
    return total


def one(rings, generator, datatype, redop, count, in_place):
    inputs = rings[0].make_inputs(generator, count, datatype)
    expected = reference.all_reduce(inputs, datatype, redop)
    for name, ring in zip(("direct", "ring"), rings):
        check(ring.all_reduce(inputs, datatype, redop, in_place=in_place), expected,
              f"{name}: {redop} of {count} {datatype}{', in place' if in_place else ''}")


def mixed(ring, generator, counts):
    """All of them at once, each in memory of its own."""
    posted = []
    for i, count in enumerate(counts):
        inputs = ring.make_inputs(generator, count, "fp32")
        places = [[client.allocate(max(count, 1) * 4).array("float32", max(count, 1))[:count]
                   for client in members] for members in ring.clients]
        for arrays, values in zip(places, inputs):
            for array, value in zip(arrays, values):
                array[:] = value
        works = [ring.groups[r][m].all_reduce(places[r][m], "sum", tag=i)
                 for r, m, _ in ring.processes()]
        posted.append((inputs, places, works))
    for i, (inputs, places, works) in enumerate(posted):
        for work in works:
            work.wait(WAIT_S)
        check(places, reference.all_reduce(inputs, "fp32", "sum"), f"op {i} of those at once")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--counts", default="1,2,15,16,17,63,100,333")
    parser.add_argument("--datatypes", default=",".join(reference.NUMPY_TYPES))
    parser.add_argument("--shape", default="direct", help="which ops of the first group have")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    sockets = arguments.sockets
    generator = np.random.default_rng(arguments.seed)
    with Ring(sockets, arguments.members) as direct, \
            Ring(sockets[-1:] + sockets[:-1], arguments.members) as other:
        ops = 0
        for datatype in arguments.datatypes.split(","):
            for redop in reference.redops_of(datatype):
                for i, count in enumerate(arguments.counts.split(",")):
                    one((direct, other), generator, datatype, redop, int(count), i % 2 == 1)
                    ops += 1
        print(f"{ops} ops in both groups: the reference's bits", flush=True)
        mixed(direct, generator, [16, 100_000, 1, 0, 20_000, 64, 64, 64, 500_000, 3] + [16] * 24)
        took = [ops_of(ring, sockets, arguments.shape) for ring in (direct, other)]
        print(f"{arguments.shape} ops: {took[0]} in the first group, {took[1]} in the other",
              flush=True)
        if took[0] < ops * len(sockets) or took[1] != 0:
            print("the ops took the wrong shape")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
