#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""faults.py [--faulty] SOCKET...: sums arrays through daemons whose ports inject faults, compares
every bit with the reference, and then the daemons' counters with what they should be: with --faulty
each kind of fault happened on each daemon, and each sent packets again; without, none did."""

import argparse
import sys

import numpy as np

import gradwire
from reference import reference
from ring import Ring, check

KINDS = ("dropped", "duplicated", "reordered", "corrupted", "delayed")
SIZES = (1, 1000, 100_003, 2_000_000)
CASES = (("fp32", "sum"), ("bf16", "avg"), ("int32", "max"))


def retransmissions(socket):
    groups = gradwire.daemon_status(socket)["groups"]
    if len(groups) != 1:
        raise SystemExit(f"{socket}: {len(groups)} groups, not 1")
    return groups[0]["retransmissions"]


def faults(socket):
    listed = gradwire.daemon_status(socket)["faults"]
    return {f["port"]: f for f in listed}


def done(socket):
    """What was done on all ports together, by kind."""
    return {kind: sum(f["counters"][kind] for f in faults(socket).values()) for kind in KINDS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--faulty", action="store_true")
    arguments = parser.parse_args()
    before = [done(socket) for socket in arguments.sockets]
    failures = []
    with Ring(arguments.sockets) as ring:
        generator = np.random.default_rng(3)
        for datatype, redop in CASES:
            for size in SIZES:
                inputs = ring.make_inputs(generator, size, datatype)
                check(ring.all_reduce(inputs, datatype, redop),
                      reference.all_reduce(inputs, datatype, redop),
                      f"{size} elements of {datatype}, {redop}")
        sent_again = [retransmissions(socket) for socket in arguments.sockets]
    for index, socket in enumerate(arguments.sockets):
        after = done(socket)
        new = {kind: after[kind] - before[index][kind] for kind in KINDS}
        print(f"rank {index}: {sent_again[index]} packets sent again; {new}", flush=True)
        if arguments.faulty:
            if sent_again[index] == 0:
                failures.append(f"rank {index} sent nothing again")
            failures += [f"rank {index}: nothing {kind}" for kind in KINDS if new[kind] == 0]
        else:
            if any(new.values()) or any(f["active"] for f in faults(socket).values()):
                failures.append(f"rank {index} has faults: {faults(socket)}")
            if any(f["counters"]["held"] for f in faults(socket).values()):
                failures.append(f"rank {index} holds frames: {faults(socket)}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
