#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""sums.py [options] SOCKET...: a client (or several) on each daemon, in rank order; sums arrays of
the given sizes and compares every bit with the reference. Exit 1 at the first difference."""

import argparse
import os
import sys
import time

import numpy as np

from reference import reference
from ring import Ring, check


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--sizes", default="1000", help="elements, comma-separated")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--datatype", default="fp32", choices=list(reference.NUMPY_TYPES))
    parser.add_argument("--redop", default="sum", choices=reference.REDOPS)
    parser.add_argument("--twice", action="store_true", help="again, in a new group")
    parser.add_argument("--until", help="first again and again until this file is there")
    parser.add_argument("--copied", action="store_true", help="memory that is not shared")
    parser.add_argument("--join-timeout", type=float, default=30.0, help="seconds")
    arguments = parser.parse_args()
    sizes = [int(s) for s in arguments.sizes.split(",")]
    for run in range(2 if arguments.twice else 1):
        with Ring(arguments.sockets, arguments.members, shared=not arguments.copied,
                  join_timeout=arguments.join_timeout) as ring:
            generator = np.random.default_rng(7)
            rounds = 0
            while arguments.until and not os.path.exists(arguments.until):
                for size in sizes:
                    inputs = ring.make_inputs(generator, size, arguments.datatype)
                    check(ring.all_reduce(inputs, arguments.datatype, arguments.redop),
                          reference.all_reduce(inputs, arguments.datatype, arguments.redop),
                          f"round {rounds}, {size} elements")
                rounds += 1
                if rounds == 1:
                    print("running", flush=True)
            if arguments.until:
                print(f"{rounds} rounds", flush=True)
            for size in sizes:
                inputs = ring.make_inputs(generator, size, arguments.datatype)
                begin = time.perf_counter()
                outputs = ring.all_reduce(inputs, arguments.datatype, arguments.redop)
                took_ms = (time.perf_counter() - begin) * 1e3
                expected = reference.all_reduce(inputs, arguments.datatype, arguments.redop)
                check(outputs, expected, f"run {run}, {size} elements")
                print(f"{size} elements: {took_ms:.2f} ms, the reference's bits on "
                      f"{ring.nranks} ranks x {ring.members} members", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
