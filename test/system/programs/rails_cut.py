#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""rails_cut.py --bytes N --cuts N --cut COMMAND --mend COMMAND --still SECONDS [--hosts N]
[--off-ring N] [--wire FORMAT] SOCKET...: one all-reduce of that size after the other, while a rail
is cut and put back so often. Every op succeeds with the reference's bits; data takes another path
at each cut, on so many hosts (default: all) and off the ring on so many (default: none), and the
first again; and at no time nothing moves for longer than --still."""

import argparse
import subprocess
import threading
import time

import numpy as np

import gradwire
from reference import formats, reference
from ring import Ring, check

PATIENCE_S = 60
# A path that was left often has to answer for half a minute; one answer lost, and it begins anew.
RETURN_S = 150


class Watch(threading.Thread):
    """Asks the daemons what moved, and for how long nothing did."""

    def __init__(self, sockets):
        super().__init__(daemon=True)
        self.sockets = sockets
        # By daemon: lanes that do without their first path, and ranks off the ring that do.
        self.away = [0] * len(sockets)
        self.off_ring = [0] * len(sockets)
        self.longest_s = 0.0
        self.op_runs = False
        self.ended = False

    def run(self):
        moved, since = None, time.monotonic()
        while not self.ended:
            seen = 0
            for i, socket in enumerate(self.sockets):
                groups = gradwire.daemon_status(socket)["groups"]
                shards = [shard for group in groups for shard in group["shards"]]
                self.away[i] = sum(shard["on_other_path"] for shard in shards)
                self.off_ring[i] = sum(shard["peers_on_other_path"] for shard in shards)
                seen += sum(shard["counters"]["data_packets_received"] +
                            shard["counters"]["contributions_received"] +
                            shard["counters"]["tile_pieces_received"] for shard in shards)
            now = time.monotonic()
            if seen != moved or not self.op_runs:
                moved, since = seen, now
            self.longest_s = max(self.longest_s, now - since)
            time.sleep(0.02)


class Cutter(threading.Thread):
    def __init__(self, watch, arguments):
        super().__init__(daemon=True)
        self.watch = watch
        self.cuts, self.cut, self.mend = arguments.cuts, arguments.cut, arguments.mend
        self.hosts = arguments.hosts or len(arguments.sockets)
        self.off_ring = arguments.off_ring
        self.error = None
        self.ended = False

    def run(self):
        try:
            for i in range(self.cuts):
                self.wait("an op runs", lambda: self.watch.op_runs)
                subprocess.run(self.cut, shell=True, check=True)
                self.wait(f"cut {i}: another path is taken",
                          lambda: sum(map(bool, self.watch.away)) >= self.hosts)
                self.wait(f"cut {i}: and off the ring",
                          lambda: sum(map(bool, self.watch.off_ring)) >= self.off_ring)
                subprocess.run(self.mend, shell=True, check=True)
                self.wait(f"cut {i}: the first path is taken again",
                          lambda: not any(self.watch.away + self.watch.off_ring), RETURN_S)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            self.error = error
        self.ended = True

    @staticmethod
    def wait(what, condition, patience_s=PATIENCE_S):
        end = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"not within {patience_s} s: {what}")
            time.sleep(0.002)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--cuts", type=int, required=True)
    parser.add_argument("--cut", required=True)
    parser.add_argument("--mend", required=True)
    parser.add_argument("--still", type=float, required=True)
    parser.add_argument("--hosts", type=int, default=0)
    parser.add_argument("--off-ring", type=int, default=0)
    parser.add_argument("--wire", help="fp32 in this format; else int32")
    arguments = parser.parse_args()
    with Ring(arguments.sockets) as ring:
        generator = np.random.default_rng(3)
        count = arguments.bytes // 4
        datatype = "fp32" if arguments.wire else "int32"
        inputs = [[generator.integers(-1000, 1000, count, np.int32).astype(
            reference.NUMPY_TYPES[datatype])] for _ in range(ring.nranks)]
        expected = (formats.all_reduce([own[0] for own in inputs], arguments.wire, 1)
                    if arguments.wire else reference.all_reduce(inputs, "int32", "sum"))
        sources, targets = ring.buffers(count, datatype)
        for rank in range(ring.nranks):
            sources[rank][0][:] = inputs[rank][0]
        watch = Watch(arguments.sockets)
        cutter = Cutter(watch, arguments)
        ops = 0
        longest_op_s = 0.0
        while not cutter.ended:
            begin = time.monotonic()
            watch.op_runs = True
            works = [ring.groups[rank][0].all_reduce(
                sources[rank][0], "sum", out=targets[rank][0], dtype=datatype,
                wire=arguments.wire)
                     for rank in range(ring.nranks)]
            for work in works:
                work.wait(PATIENCE_S)
            watch.op_runs = False
            longest_op_s = max(longest_op_s, time.monotonic() - begin)
            check(targets, expected, f"op {ops}")
            for rank in range(ring.nranks):
                targets[rank][0].view(np.uint8)[:] = 0xA5
            ops += 1
            if ops == 1:
                watch.start()
                cutter.start()
        watch.ended = True
        if cutter.error is not None:
            raise SystemExit(str(cutter.error))
        print(f"{ops} ops of {arguments.bytes} bytes during {arguments.cuts} cuts: the reference's "
              f"bits, {longest_op_s:.2f} s an op at most, {watch.longest_s:.2f} s without progress",
              flush=True)
        if watch.longest_s > arguments.still:
            raise SystemExit(f"more than {arguments.still} s without progress")


if __name__ == "__main__":
    main()
