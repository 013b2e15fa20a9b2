#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpu_sums.py --backend NAME --path PATH SOCKET...: sums through daemons that reduce on a GPU,
every datatype and redop, awkward counts, 1 and 2 members, compared with the reference bit by bit.
Then each daemon's own counters have to say that the GPU reduced exactly the chunks that its rank's
reducing hops are (lib/collective/shapes/shape.h), by that path, and that the CPU reduced none."""

import argparse
import sys
import time

import numpy as np

import gradwire
from reference import reference
from ring import Ring, check

EXCHANGE = 512 << 10  # transport.exchange_kib


def chunks_of_segments(count, datatype, nranks, payload_bytes):
    """How many chunks each segment has (lib/collective/shapes/partition.h)."""
    width = reference.NUMPY_TYPES[datatype].itemsize
    per_line = 64 // width
    segment = -(-(-(-count // nranks)) // per_line) * per_line
    chunk = payload_bytes // width
    lengths = [max(0, min(segment, count - s * segment)) for s in range(nranks)]
    return [-(-length // chunk) for length in lengths]


def run(ring, datatypes, redops, expected):
    """Adds each rank's reducing hops to `expected`. @return sums."""
    sums = 0
    payload = ring.payload_bytes
    for datatype in datatypes:
        per_chunk = payload // reference.NUMPY_TYPES[datatype].itemsize
        for count in (1, per_chunk + 1, 7 * ring.nranks * per_chunk // 2 + 3):
            generator = np.random.default_rng([ring.members, count])
            inputs = ring.make_inputs(generator, count, datatype)
            for redop in (r for r in redops if r in reference.redops_of(datatype)):
                outputs = ring.all_reduce(inputs, datatype, redop, in_place=sums % 2 == 1)
                check(outputs, reference.all_reduce(inputs, datatype, redop),
                      f"{ring.members} members, {datatype} {redop} {count}")
                # Two ranks of one member exchange whole inputs: each folds every chunk.
                width = reference.NUMPY_TYPES[datatype].itemsize
                exchange = (ring.nranks, ring.members) == (2, 1) and count * width <= EXCHANGE
                chunks = chunks_of_segments(count, datatype, 1 if exchange else ring.nranks,
                                            payload)
                for rank in range(ring.nranks):
                    expected[rank] += sum(chunks) - (0 if exchange else chunks[rank])
                sums += 1
    return sums


def counted(socket, arguments, before, expected):
    """Whether the daemon's counters are as they have to be. @return what is wrong, or None."""
    totals = {(r["backend"], r["path"]): r for r in gradwire.daemon_status(socket)["reduce"]}
    others = [key for key, r in totals.items()
              if key != (arguments.backend, arguments.path) and r["chunks_reduced"]]
    if others:
        return f"{others} reduced chunks, {arguments.backend} alone should have"
    mine = totals.get((arguments.backend, arguments.path), {"chunks_reduced": 0, "bytes": 0})
    reduced = mine["chunks_reduced"] - before
    if reduced != expected or mine["bytes"] == 0:
        return f"{arguments.backend} reduced {reduced} chunks, {expected} expected: {totals}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--backend", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--datatypes", default=",".join(reference.NUMPY_TYPES))
    parser.add_argument("--copied", action="store_true",
                        help="from the heap: gradient memory that numpy has no arrays in")
    arguments = parser.parse_args()
    before = [sum(r["chunks_reduced"] for r in gradwire.daemon_status(s)["reduce"])
              for s in arguments.sockets]
    expected = [0] * len(arguments.sockets)
    sums = 0
    for members, redops in ((1, reference.REDOPS), (2, ("sum", "avg"))):
        with Ring(arguments.sockets, members, shared=not arguments.copied) as ring:
            sums += run(ring, arguments.datatypes.split(","), redops, expected)
    for rank, socket in enumerate(arguments.sockets):
        # The last of a group's counters are published when its lanes have let go of it.
        for _ in range(100):
            wrong = counted(socket, arguments, before[rank], expected[rank])
            if wrong is None:
                break
            time.sleep(0.05)
        else:
            raise SystemExit(f"rank {rank}: {wrong}")
    print(f"{sums} sums, chunks reduced by {arguments.backend} ({arguments.path}) on each rank: "
          f"{expected}; by anything else: 0", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
