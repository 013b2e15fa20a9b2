#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""soak_client.py: one client of soak.py. All ranks draw the same ops, and everybody's inputs, from
the seed, so each compares its own result with the reference. Prints how many sums were right. With
--endless it goes on until it is told of an error, which it prints first."""

import argparse
import os
import random
import sys

import numpy as np

import gradwire
from reference import reference
from ring import check, meet_in_folder, random_values

WAIT_S = 60
BYTES_MAX = 4 << 20


def ops(seed, endless):
    """Yields (datatype, redop, count, in place, seed of the inputs) of each op."""
    generator = random.Random(seed)
    left = generator.randint(3, 40)
    while endless or left > 0:
        left -= 1
        datatype = generator.choice(list(reference.NUMPY_TYPES))
        most = BYTES_MAX // reference.NUMPY_TYPES[datatype].itemsize
        count = int(most ** generator.random()) if generator.random() < 0.95 else 0
        yield (datatype, generator.choice(reference.redops_of(datatype)), count,
               generator.random() < 0.5, generator.getrandbits(32))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    for name in ("--rank", "--group", "--epoch", "--seed"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--endless", action="store_true")
    arguments = parser.parse_args()
    nranks, rank = len(arguments.sockets), arguments.rank
    client = gradwire.Client(arguments.sockets[rank])
    _, infos = meet_in_folder(arguments.folder, rank, nranks, {rank: client.describe()},
                              arguments.group)
    group = client.join(arguments.group, arguments.epoch, rank, [infos[r] for r in range(nranks)])
    source, target = (client.allocate(BYTES_MAX).array("uint8") for _ in range(2))
    done = 0
    try:
        for datatype, redop, count, in_place, seed in ops(arguments.seed, arguments.endless):
            inputs = [[random_values(np.random.default_rng([seed, r]), count, datatype)]
                      for r in range(nranks)]
            kind = reference.NUMPY_TYPES[datatype]
            given = source[:count * kind.itemsize].view(kind)
            result = given if in_place else target[:count * kind.itemsize].view(kind)
            result.view(np.uint8)[:] = 0xA5
            given[:] = inputs[rank][0]
            group.all_reduce(given, redop, out=result, dtype=datatype).wait(WAIT_S)
            check([[result]], reference.all_reduce(inputs, datatype, redop),
                  f"rank {rank}, sum {done + 1}: {count} elements of {datatype}, {redop}")
            done += 1
            if done == 1:
                with open(os.path.join(arguments.folder, f"running{rank}"), "w", encoding="utf-8"):
                    pass
    except gradwire.GradwireError as error:
        print(error)
        print(done)
        return 0 if arguments.endless else 1
    group.close()
    client.close()
    print(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
