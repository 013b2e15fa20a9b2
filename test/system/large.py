#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""large.py SOCKET SOCKET: an all-reduce and a transfer of more than 2^32 bytes between two
processes, each byte compared. Each process has one piece of gradient memory of that size."""

import sys
import time

import numpy as np

from ring import Ring

COUNT = (1 << 32) + 12_345
# Values repeat after so many: a prime, so that an offset that lost its upper half brings others.
PERIOD = 16_777_213
WAIT_S = 900


def pieces(array):
    for begin in range(0, len(array), PERIOD):
        yield begin, array[begin:begin + PERIOD]


def fill(array, values):
    for _, piece in pieces(array):
        piece[:] = values[:len(piece)]


def check(array, values, what):
    for begin, piece in pieces(array):
        if np.array_equal(piece, values[:len(piece)]):
            continue
        i = int(np.nonzero(piece != values[:len(piece)])[0][0])
        raise SystemExit(f"{what}: byte {begin + i} is {piece[i]}, not {values[i]}")
    print(f"{what}: {len(array)} bytes are right", flush=True)


def main():
    generator = np.random.default_rng(5)
    inputs = [generator.integers(0, 256, PERIOD, np.uint8) for _ in range(2)]
    with Ring(sys.argv[1:]) as ring:
        groups = [members[0] for members in ring.groups]
        arrays = [members[0].allocate(COUNT).array("uint8", COUNT) for members in ring.clients]
        for array, values in zip(arrays, inputs):
            fill(array, values)
        begin = time.perf_counter()
        works = [group.all_reduce(array, "sum", out=array)
                 for group, array in zip(groups, arrays)]
        for work in works:
            work.wait(WAIT_S)
        print(f"all-reduce of {COUNT} bytes: {time.perf_counter() - begin:.1f} s", flush=True)
        sums = inputs[0] + inputs[1]
        for rank, array in enumerate(arrays):
            check(array, sums, f"all-reduce, rank {rank}")

        fill(arrays[1], np.full(PERIOD, 0xA5, np.uint8))
        begin = time.perf_counter()
        works = [groups[1].recv(arrays[1], 0), groups[0].send(arrays[0], 1)]
        for work in works:
            work.wait(WAIT_S)
        print(f"send of {COUNT} bytes: {time.perf_counter() - begin:.1f} s", flush=True)
        check(arrays[1], sums, "send, the receiver")
        check(arrays[0], sums, "send, the sender")
        del arrays, array
    return 0


if __name__ == "__main__":
    sys.exit(main())
