#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""progress.py --until FILE SOCKET...: a client on each daemon, in rank order, sums arrays of --size
elements again and again until FILE is there, once at least, and compares every bit with the
reference. Says how long at most no rank received anything while an op was under way, and exits 1 if
that was longer than --bound-ms, or if an op failed."""

import argparse
import os
import sys
import threading
import time

import numpy as np

import gradwire
from reference import reference
from ring import WAIT_S, Ring, check

LOOK_S = 0.01


class Watch(threading.Thread):
    """Looks at what the daemons have received, while an op is under way."""

    def __init__(self, sockets):
        super().__init__(daemon=True)
        self.sockets = sockets
        self.running = threading.Event()
        self.longest_s = 0.0
        self.begun_at = 0.0

    def received(self):
        lanes = [lane for socket in self.sockets
                 for lane in gradwire.daemon_status(socket)["lanes"]]
        return sum(lane["transport"]["data_packets_received"] for lane in lanes)

    def op(self, post, wait):
        self.begun_at = time.monotonic()
        self.running.set()
        post()
        wait()
        self.running.clear()

    def run(self):
        last, since = -1, time.monotonic()
        while True:
            if not self.running.wait(LOOK_S):
                last = -1
                continue
            now, received = time.monotonic(), self.received()
            if received != last:
                last, since = received, now
            self.longest_s = max(self.longest_s, now - max(since, self.begun_at))
            time.sleep(LOOK_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--size", type=int, default=10_000, help="elements of fp32")
    parser.add_argument("--until", required=True)
    parser.add_argument("--bound-ms", type=float, required=True)
    arguments = parser.parse_args()
    with Ring(arguments.sockets) as ring:
        watch = Watch(arguments.sockets)
        watch.start()
        inputs = ring.make_inputs(np.random.default_rng(7), arguments.size, "fp32")
        expected = reference.all_reduce(inputs, "fp32", "sum")
        rounds = 0
        while rounds == 0 or not os.path.exists(arguments.until):
            sources, targets = ring.buffers(arguments.size, "fp32")
            for rank, members in enumerate(sources):
                members[0][:] = inputs[rank][0]
                targets[rank][0].view(np.uint8)[:] = 0xA5
            works = []
            watch.op(lambda: works.extend(
                ring.groups[rank][0].all_reduce(sources[rank][0], "sum", out=targets[rank][0],
                                                dtype="fp32") for rank in range(ring.nranks)),
                     lambda: [work.wait(WAIT_S) for work in works])
            check(targets, expected, f"round {rounds}")
            rounds += 1
            if rounds == 1:
                print("running", flush=True)
    longest_ms = watch.longest_s * 1e3
    print(f"{rounds} ops, all with the reference's bits; at most {longest_ms:.0f} ms without "
          "progress")
    if longest_ms > arguments.bound_ms:
        print(f"that is more than {arguments.bound_ms:.0f} ms")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
