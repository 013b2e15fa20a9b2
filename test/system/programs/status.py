#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""status.py SOCKET: prints the daemon's status. With --expect-no-clients exit 1 while it has a
client or a group, or maps gradient memory, as its own word and /proc/PID/maps have it; with
--expect-lanes N unless it has N lanes and each has received chunks, with --expect-ports N the
same of its ports."""

import argparse
import json
import sys

import gradwire

GRADIENT_MEMORY = "/memfd:gradwire"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("socket")
    parser.add_argument("--expect-no-clients", action="store_true")
    parser.add_argument("--expect-lanes", type=int)
    parser.add_argument("--expect-ports", type=int)
    arguments = parser.parse_args()
    try:
        status = gradwire.daemon_status(arguments.socket)
    except gradwire.GradwireError as error:
        print(f"{arguments.socket}: {error}")
        return 1
    print(json.dumps(status, indent=1))
    if arguments.expect_no_clients:
        left = len(status["clients"]) + len(status["groups"])
        with open(f"/proc/{status['daemon']['pid']}/maps", encoding="utf-8") as maps:
            mapped = [line.split()[5] for line in maps if GRADIENT_MEMORY in line]
        if left or mapped:
            print(f"{len(status['clients'])} clients, {len(status['groups'])} groups, mapped: "
                  f"{mapped}")
            return 1
    for what, wanted in ("lanes", arguments.expect_lanes), ("ports", arguments.expect_ports):
        if wanted is None:
            continue
        received = [one["counters"]["rx_bytes"] for one in status[what]]
        print(f"bytes received by {what}: {received}")
        if len(received) != wanted or min(received) < 100_000:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
