#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""until_error.py --out FILE SOCKET...: a client on each daemon (or --rank: on one of them) sums
without pause until it is told of an error, which goes to FILE: RANK WHEN_NS CODE TEXT, a line a
rank. Says "running" when every rank has its first sum, and stops by itself --seconds later."""

import argparse
import sys
import threading
import time

import numpy as np

import gradwire
from ring import EPOCH, meet_in_folder, new_group_id

ELEMENTS = 4 << 20  # 16 MiB of fp32: an op that takes long enough to be in its middle
WAIT_S = 30


class Deadline:
    """Not before begin() was called, and so long."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.at = None

    def begin(self):
        self.at = time.monotonic() + self.seconds

    def is_over(self):
        return self.at is not None and time.monotonic() > self.at


def call_until_error(name, client, group, deadline, started, wire=None):
    """Any other collective, and an all-reduce that says whether to stop. @return the same."""
    share = ELEMENTS // group.processes
    whole = client.allocate(ELEMENTS * 4).array("float32")[:share * group.processes]
    block = client.allocate(share * 4).array("float32", share)
    flag = client.allocate(4).array("float32", 1)
    other = None
    if name in ("send-recv", "all-to-all"):
        other = client.allocate(ELEMENTS * 4).array("float32")[:share * group.processes]
    size, process = group.processes, group.process
    root = process == 0
    post = {
        "send-recv": lambda: [group.recv(other, (process - 1) % size),
                              group.send(whole, (process + 1) % size)],
        "all-to-all": lambda: group.all_to_all(whole, other),
        "gather": lambda: group.gather(block, 0, out=whole if root else None),
        "scatter": lambda: group.scatter(whole if root else None, block, 0),
        "reduce-scatter": lambda: group.reduce_scatter(whole, block, wire=wire),
        "all-gather": lambda: group.all_gather(block, whole),
        "broadcast": lambda: group.broadcast(whole, 0),
        "reduce": lambda: group.reduce(whole, 0, wire=wire),
        "barrier": group.barrier,
    }[name]
    first = True
    while True:
        flag[:] = deadline.is_over()
        try:
            # Several at once: who is killed is in the middle of some.
            works = [post() for _ in range(4 if name == "barrier" else 1)]
            if isinstance(works[0], list):
                works = works[0]
            works.append(group.all_reduce(flag, "max"))
            for work in works:
                work.wait(WAIT_S)
        except gradwire.GradwireError as error:
            return error
        if first:
            started.release()
            first = False
        if flag[0] > 0:
            return None


def sum_until_error(client, group, elements, deadline, started, wire=None):
    """@return the error, or None at the deadline."""
    memory = client.allocate(elements * 4)
    # numpy has no arrays on a GPU: the library copies there and back.
    array = (np.zeros(elements, "float32") if memory.device is not None
             else memory.array("float32", elements))
    # Everyone has to stop after the same op: the deadline is part of what is summed.
    first = True
    while True:
        array[:] = 0
        array[0] = deadline.is_over()
        try:
            group.all_reduce(array, "sum" if wire else "max", wire=wire).wait(WAIT_S)
        except gradwire.GradwireError as error:
            return error
        if first:
            started.release()
            first = False
        if array[0] > 0:
            return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rank", type=int, help="only this one, in this process")
    parser.add_argument("--meet", help="folder in which processes of a group exchange addresses")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--collective", default="all-reduce")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="of an all-reduce")
    parser.add_argument("--wire", help="format in which sums travel")
    arguments = parser.parse_args()
    nranks = len(arguments.sockets)
    ranks = range(nranks) if arguments.rank is None else [arguments.rank]
    clients = {rank: gradwire.Client(arguments.sockets[rank]) for rank in ranks}
    infos = {rank: client.describe() for rank, client in clients.items()}
    group_id = new_group_id()
    if arguments.meet:
        group_id, infos = meet_in_folder(arguments.meet, arguments.rank, nranks, infos, group_id)

    deadline = Deadline(arguments.seconds)
    started = threading.Semaphore(0)
    errors = {}

    def run(rank):
        group = clients[rank].join(group_id, EPOCH, rank, [infos[r] for r in range(nranks)])
        if arguments.collective == "all-reduce":
            error = sum_until_error(clients[rank], group, arguments.elements, deadline, started,
                                    arguments.wire)
        else:
            error = call_until_error(arguments.collective, clients[rank], group, deadline, started,
                                     arguments.wire)
        if error is not None:
            errors[rank] = (time.time_ns(), error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        if not started.acquire(timeout=60):
            print("no sum within 60 s", flush=True)
            break
    else:
        print("running", flush=True)
    deadline.begin()
    for thread in threads:
        thread.join()
    with open(arguments.out, "w", encoding="utf-8") as out:
        for rank, (when_ns, error) in sorted(errors.items()):
            out.write(f"{rank} {when_ns} {error.code.name} {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
