#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""matrix.py --digests FILE SOCKET...: every datatype and redop, 1 and 2 members, awkward counts, in
place and out of place, against the reference. The digests of all sums go to FILE; if it is there
already, from a run with another payload size, they must be the same."""

import argparse
import hashlib
import json
import os
import sys
import time

import numpy as np

from reference import reference
from ring import Ring, check


def counts_for(nranks, datatype, payload_bytes):
    payload = payload_bytes // reference.NUMPY_TYPES[datatype].itemsize
    below = [nranks - 1] if nranks > 2 else []
    # The last is odd and fills several chunks of each segment, whatever the payload.
    return [0, 1, *below, payload - 1, payload, payload + 1, 5 * nranks * payload // 2 + 3]


def run_ops(ring, digests, payload_bytes):
    """All ops of one group."""
    ops = 0
    for datatype in reference.NUMPY_TYPES:
        # Seeded by what is summed alone, so that another payload size sums the same.
        for count in counts_for(ring.nranks, datatype, payload_bytes):
            generator = np.random.default_rng([ring.nranks, ring.members, count])
            inputs = ring.make_inputs(generator, count, datatype)
            for redop in reference.redops_of(datatype):
                what = f"{ring.nranks} ranks, {ring.members} members, {datatype} {redop} {count}"
                expected = reference.all_reduce(inputs, datatype, redop)
                outputs = ring.all_reduce(inputs, datatype, redop, in_place=ops % 2 == 1)
                check(outputs, expected, what)
                digest = hashlib.sha256(outputs[0][0].tobytes()).hexdigest()
                if digests.setdefault(what, digest) != digest:
                    raise SystemExit(f"{what}: other bytes than in an earlier run")
                ops += 1
    return ops


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--digests", required=True)
    parser.add_argument("--large", type=int, help="elements of one large sum besides")
    arguments = parser.parse_args()
    digests = {}
    if os.path.exists(arguments.digests):
        with open(arguments.digests, encoding="utf-8") as f:
            digests = json.load(f)
    # The payload that counts are taken around: the same for every run over the same digests.
    payload_bytes = 0
    for members in (1, 2):
        begin = time.perf_counter()
        with Ring(arguments.sockets, members) as ring:
            payload_bytes = digests.setdefault("payload_bytes", ring.payload_bytes)
            ops = run_ops(ring, digests, payload_bytes)
            if ring.payload_bytes == payload_bytes:
                ops += run_ops(ring, digests, payload_bytes)  # a second run: the same bytes
            else:
                ops += run_ops(ring, {}, ring.payload_bytes)  # awkward for this payload too
        print(f"{members} members: {ops} sums in {time.perf_counter() - begin:.1f} s, payload "
              f"{ring.payload_bytes} bytes", flush=True)
    if arguments.large:
        large(arguments.sockets, arguments.large)
    with open(arguments.digests, "w", encoding="utf-8") as f:
        json.dump(digests, f)
    return 0


def large(sockets, count):
    with Ring(sockets, 1) as ring:
        inputs = ring.make_inputs(np.random.default_rng(count), count, "fp32")
        begin = time.perf_counter()
        outputs = ring.all_reduce(inputs, "fp32", "sum")
        took_s = time.perf_counter() - begin
        check(outputs, reference.all_reduce(inputs, "fp32", "sum"), f"{count} elements")
    print(f"{count} elements: {took_s:.2f} s, copies of the inputs included", flush=True)


if __name__ == "__main__":
    sys.exit(main())
