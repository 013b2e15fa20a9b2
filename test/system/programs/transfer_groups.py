#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""transfer_groups.py SOCKET SOCKET: many groups for transfers alone between two daemons: all carry
what is sent, send nothing while nobody waits, have no ops, have a bound of their own by user, and
end by name."""

import argparse
import sys
import threading
import time

import numpy as np

import gradwire
from groups import Part
from told import same, told, wait

GROUPS = 96
MOST = 100  # limits.user_transfer_groups of the story's daemons


def frames(sockets):
    """What both daemons have sent by all ports, and how many pings of it."""
    sent = pings = 0
    for socket in sockets:
        status = gradwire.daemon_status(socket)
        sent += sum(port["counters"]["tx_packets"] for port in status["ports"])
        pings += sum(lane["transport"]["pings_sent"] for lane in status["lanes"])
    return sent, pings


def carry(parts, generator):
    """A message each way in each group, all at once."""
    works, checks = [], []
    for part in parts:
        for source in (0, 1):
            size = int(generator.integers(1, 5000))
            value = generator.integers(0, 256, size, "uint8")
            out = np.zeros(size, "uint8")
            works += [part.group[source].send(value, 1 - source),
                      part.group[1 - source].recv(out, source)]
            checks.append((out, value))
    wait(works)
    for out, value in checks:
        same(out, value, f"{out.size} bytes")


def at_one_end(clients, infos):
    """Each end hears that the other's table is not its own."""
    errors = [None, None]

    def join(p):
        try:
            clients[p].join_processes(3, 1, p, infos, timeout=5, transfers_alone=p == 0)
        except gradwire.GradwireError as error:
            errors[p] = str(error)

    threads = [threading.Thread(target=join, args=(p,)) for p in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not any(error and "for transfers alone" in error for error in errors) or None in errors:
        raise SystemExit(f"joined for transfers alone at one end: {errors}")
    print(f"  at one end alone: {errors}", flush=True)


def until_error(clients, infos, out):
    """Process 0 waits for process 1, which says nothing, until there is an error."""
    part = Part(clients, infos, [0, 1], transfers_alone=True)
    work = part.group[0].recv(np.zeros(1, "uint8"), 1)
    print("waits", flush=True)
    try:
        work.wait(30)
    except gradwire.GradwireError as error:
        with open(out, "w", encoding="utf-8") as file:
            file.write(f"{error.code.name} {error}\n")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs=2)
    parser.add_argument("--until-error", metavar="FILE",
                        help="one group, in which somebody waits until there is an error")
    arguments = parser.parse_args()
    sockets = arguments.sockets
    clients = [gradwire.Client(socket) for socket in sockets]
    infos = [client.describe() for client in clients]
    if arguments.until_error:
        return until_error(clients, infos, arguments.until_error)
    generator = np.random.default_rng(5)

    def alone():
        return Part(clients, infos, [0, 1], transfers_alone=True)

    began = time.monotonic()
    parts = [alone() for _ in range(GROUPS)]
    print(f"{GROUPS} groups in {time.monotonic() - began:.2f} s", flush=True)
    carry(parts, generator)

    # Some answers may still be on their way.
    for tries in range(30):
        before = frames(sockets)
        time.sleep(1)
        after = frames(sockets)
        if after == before:
            break
        if tries == 29:
            raise SystemExit(f"{GROUPS} groups in which nobody waits: {before} frames and pings "
                             f"before, {after} a second later")
    carry(parts, generator)

    value = np.ones(4, "float32")
    for what, call in (("all-reduce", lambda g: g.all_reduce(value)),
                       ("barrier", lambda g: g.barrier()),
                       ("broadcast", lambda g: g.broadcast(value, 0))):
        told(lambda c=call: c(parts[0].group[0]).wait(10), gradwire.Status.UNSUPPORTED,
             f"no {what} in a group for transfers alone", what)

    # Ordinary groups have their own bound, and one of each kind at both ends is no group.
    parts += [alone() for _ in range(MOST - GROUPS)]
    told(lambda: clients[0].join_processes(1, 1, 0, infos, timeout=5, transfers_alone=True),
         gradwire.Status.RESOURCE_EXHAUSTED, rf"limits.user_transfer_groups = {MOST}",
         "one group too many")
    Part(clients, infos, [0, 1]).leave()
    parts.pop().leave()
    told(lambda: clients[0].join_processes(2, 1, 0, infos[:1], timeout=5, transfers_alone=True),
         gradwire.Status.INVALID_ARGUMENT, "of two daemons", "a group of one daemon")
    at_one_end(clients, infos)

    # Whoever waits is told who is gone; the other groups end, too.
    works = [part.group[0].recv(np.zeros(1, "uint8"), 1) for part in parts]
    parts[0].group[1].abort("enough")
    aborted = gradwire.Status.ABORTED
    told(lambda: works[0].wait(10), aborted, "enough", "the one that was ended")
    clients[1].close()
    for number, work in enumerate(works[1:], 1):
        told(lambda w=work: w.wait(10), aborted, "rank 1", f"group {number}")
    clients[0].close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
