#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""old_epoch.py --group ID --epoch N [--hold] SOCKET...: a ring under that epoch. With --hold it
sums until daemon 0 holds packets back, says "holding", and goes on until it is told of an error.
Without, it sums until what daemon 0 held back was let go, and compares what daemon 0 dropped as of
an unknown group with what it had held: packets of the old epoch, every one."""

import argparse
import sys
import time

import numpy as np

import gradwire
import ring as rings
from reference import reference

HELD_LEAST = 5
LIMIT_S = 120
COUNT = 200_003


def held(socket):
    return sum(f["counters"]["held"] for f in gradwire.daemon_status(socket)["faults"])


def unknown(socket):
    """Packets dropped because no group here is theirs."""
    lanes = gradwire.daemon_status(socket)["lanes"]
    return sum(lane["counters"]["drops"]["unknown_group"] for lane in lanes)


def sum_once(ring, generator):
    inputs = ring.make_inputs(generator, COUNT, "fp32")
    expected = reference.all_reduce(inputs, "fp32", "sum")
    rings.check(ring.all_reduce(inputs, "fp32", "sum"), expected, "sum")


def hold(ring, socket, generator):
    said = False
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        try:
            sum_once(ring, generator)
        except gradwire.GradwireError as error:
            print(error, flush=True)
            return 0 if said else 1
        if not said and held(socket) >= HELD_LEAST:
            print("holding", flush=True)
            said = True
    print("nobody said that the group is over")
    return 1


def let_go(ring, socket, generator):
    # One that is let go between the two readings would be in both.
    waiting = before = -1
    while waiting != held(socket):
        waiting, before = held(socket), unknown(socket)
    if waiting < HELD_LEAST:
        print(f"only {waiting} packets of the old epoch are still to come")
        return 1
    sums = 0
    end = time.monotonic() + LIMIT_S
    while held(socket) > 0 and time.monotonic() < end:
        sum_once(ring, generator)
        sums += 1
    sum_once(ring, generator)
    dropped = unknown(socket) - before
    print(f"{waiting} packets of the old epoch came during {sums} sums, {dropped} were dropped")
    return 0 if dropped == waiting and sums > 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--group", type=int, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--hold", action="store_true")
    arguments = parser.parse_args()
    rings.EPOCH = arguments.epoch
    rings.new_group_id = lambda: arguments.group
    ring = rings.Ring(arguments.sockets)
    act = hold if arguments.hold else let_go
    status = act(ring, arguments.sockets[0], np.random.default_rng(arguments.epoch))
    # Of a group that is over, one daemon is gone: there is nothing to leave in order.
    if not arguments.hold:
        ring.__exit__()
    return status


if __name__ == "__main__":
    sys.exit(main())
