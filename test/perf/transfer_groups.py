#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""transfer_groups.py --pid PID SOCKET SOCKET: processor time and memory of the first daemon, whose
process id is PID, with so many idle groups for transfers alone."""

import argparse
import os
import sys
import threading
import time

import gradwire


def seconds_by_thread(pid):
    """Of each thread, by its name, what it computed so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8") as file:
            name, rest = file.read().rsplit(")", 1)
        fields = rest.split()
        name = name.split("(", 1)[1]
        found[name] = found.get(name, 0) + (int(fields[11]) + int(fields[12])) / ticks
    return found


def resident_kib(pid):
    """Without hugepages."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss:"))


def join(clients, infos, number):
    groups = [None, None]
    errors = []

    def one(process):
        try:
            groups[process] = clients[process].join_processes(
                1 + number, 1, process, infos, transfers_alone=True)
        except gradwire.GradwireError as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(process,)) for process in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise SystemExit(f"group {number}: {errors}")
    return groups


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs=2)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    clients = [gradwire.Client(socket) for socket in arguments.sockets]
    infos = [client.describe() for client in clients]
    groups = []
    print(f"{'groups':>6} {'resident':>10} {'to form one':>12}  share of a core, by thread")
    for count in (0, 100, 1000):
        began = time.monotonic()
        made = count - len(groups)
        while len(groups) < count:
            groups.append(join(clients, infos, len(groups)))
        each_ms = (time.monotonic() - began) / made * 1e3 if made else 0
        time.sleep(2)
        before = seconds_by_thread(arguments.pid)
        time.sleep(arguments.seconds)
        after = seconds_by_thread(arguments.pid)
        shares = {name: (after[name] - before.get(name, 0)) / arguments.seconds for name in after}
        text = ", ".join(f"{name} {share * 100:.2f} %" for name, share in sorted(shares.items())
                         if share >= 0.0005)
        print(f"{count:6} {resident_kib(arguments.pid):6} KiB {each_ms:9.2f} ms  {text}",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
