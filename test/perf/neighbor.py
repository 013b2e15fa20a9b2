#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""neighbor.py requests SOCKET SECONDS: how long root's status, open, describe, allocate and join
of a rank alone take, in turn, for so long: a line of JSON with p50, p99 and the longest in ms.
neighbor.py joins SOCKET: uid 65534 joins with made-up tables of 1,024 ranks on eight connections,
as fast as it can, until it is ended.
neighbor.py hog WHAT SOCKET: does what lane_hogs.py does again and again, until it is ended."""

import ctypes
import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
import fair_share  # noqa: E402
import lane_hogs  # noqa: E402
from raw_client import RawClient  # noqa: E402


def requests(path, seconds):
    end = time.monotonic() + float(seconds)
    took = {}
    while time.monotonic() < end:
        for what, ms in fair_share.requests(path):
            took.setdefault(what, []).append(ms)
        time.sleep(0.02)
    for times in took.values():
        times.sort()
    print(json.dumps({what: [round(times[place], 2)
                             for place in (len(times) // 2, len(times) * 99 // 100, -1)]
                      for what, times in took.items()}))


def hog(what, path):
    """Each time in a process of its own, which leaves nothing: descriptors keep hugepages."""
    die_with_parent = 1  # PR_SET_PDEATHSIG
    while True:
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(die_with_parent, signal.SIGKILL)
            getattr(lane_hogs, what)(path)
            os._exit(0)
        os.waitpid(child, 0)


def joins(path):
    os.setgroups([])
    os.setgid(fair_share.NOBODY)
    os.setuid(fair_share.NOBODY)
    clients = [RawClient(path).open() for _ in range(8)]
    table = fair_share.made_up(clients[0].describe())
    fair_share.flood(clients, fair_share.sealed_file(fair_share.join_body(1023, table, 1)))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
