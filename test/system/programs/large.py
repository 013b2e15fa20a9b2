#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""large.py SOCKET SOCKET: an all-reduce, a send and all-to-alls of more than 2^32 bytes between two
processes, each byte compared. Each process has one piece of gradient memory of that size."""

import sys
import time

import numpy as np

from ring import Ring

COUNT = (1 << 32) + 12_345
# Values repeat after so many: a prime, so that an offset that lost its upper half brings others.
PERIOD = 16_777_213
SMALL = 1_001  # bytes of the other blocks of an all-to-all
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


def block(counts, process):
    return slice(sum(counts[:process]), sum(counts[:process + 1]))


def all_to_all(groups, small, sender, source, target):
    """All of `source` but a small block goes from `sender` to the other process, which gets it in
    `target`; every other block is small. Blocks lie in the order of processes, so that of process 1
    begins beyond 2^32 in the source of process 1, and in the target."""
    receiver = 1 - sender
    counts = [[SMALL, SMALL], [SMALL, SMALL]]  # [from][to]
    counts[sender][receiver] = COUNT - SMALL
    sent = [None, None]
    got = [None, None]
    sent[sender], sent[receiver] = source, small[receiver][:2 * SMALL]
    got[receiver], got[sender] = target, small[sender][2 * SMALL:]
    for array in got:
        fill(array, np.full(PERIOD, 0xA5, np.uint8))
    begin = time.perf_counter()
    works = [groups[p].all_to_all(sent[p], got[p], input_counts=counts[p],
                                  output_counts=[counts[q][p] for q in range(2)])
             for p in range(2)]
    for work in works:
        work.wait(WAIT_S)
    print(f"all-to-all of {COUNT} bytes from process {sender}: {time.perf_counter() - begin:.1f} s",
          flush=True)
    for p in range(2):
        for q in range(2):
            want = sent[q][block(counts[q], p)]
            have = got[p][block([counts[0][p], counts[1][p]], q)]
            for begin, piece in pieces(want):
                if not np.array_equal(have[begin:begin + len(piece)], piece):
                    raise SystemExit(f"all-to-all from process {sender}: the block of process {q} "
                                     f"is wrong at process {p}, in the {PERIOD} bytes from {begin}")


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

        small = [members[0].allocate(4 * SMALL).array("uint8", 4 * SMALL)
                 for members in ring.clients]
        for array in small:
            array[:] = generator.integers(0, 256, len(array), np.uint8)
        all_to_all(groups, small, 0, arrays[0], arrays[1])
        check(arrays[0], sums, "all-to-all, what was sent")
        all_to_all(groups, small, 1, arrays[1], arrays[0])
        # There and back: each byte is where it was, but for the blocks that stayed.
        arrays[0][:SMALL] = sums[:SMALL]
        check(arrays[0], sums, "all-to-all there and back")
        del small
        del arrays, array
    return 0


if __name__ == "__main__":
    sys.exit(main())
