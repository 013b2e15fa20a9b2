#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""groups.py [--many N] SOCKET SOCKET SOCKET: groups as jobs have them. Processes in any order, any
number of them at each daemon, parts of a job that overlap, one host alone: every collective,
against the reference, by the processes' own numbers. With --many: so many groups made and left."""

import argparse
import json
import random
import sys
import threading

import numpy as np

import gradwire
from reference import reference
from ring import WAIT_S, new_group_id, random_values



class Part:
    """A group of some of the job's processes: `group[p]` of its process p."""

    def __init__(self, clients, infos, processes, **options):
        self.processes = processes
        self.group = [None] * len(processes)
        self.errors = []
        group_id = new_group_id()

        def join(p):
            try:
                self.group[p] = clients[processes[p]].join_processes(
                    group_id, 1, p, [infos[q] for q in processes], timeout=60, **options)
            except gradwire.GradwireError as error:
                self.errors.append(f"process {p}: {error}")

        threads = [threading.Thread(target=join, args=(p,)) for p in range(len(processes))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise SystemExit(f"processes {processes} formed no group: {self.errors}")
        self.ranks = [self.group[0].rank_of(p) for p in range(len(processes))]
        self.nranks = self.group[0].nranks

    def by_rank(self, arrays):
        """What the reference takes: by rank, and in each rank by process."""
        return [[a for a, at in zip(arrays, self.ranks) if at == rank]
                for rank in range(self.nranks)]

    def leave(self):
        threads = [threading.Thread(target=group.leave) for group in self.group]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for group in self.group:
            group.close()


def same(got, want, what):
    width = f"u{want.dtype.itemsize}"
    wrong = np.nonzero(got.view(width) != want.view(width))[0]
    if len(wrong):
        raise SystemExit(f"{what}: {len(wrong)} of {len(want)} elements differ from the reference, "
                         f"the first is {wrong[0]}: {got[wrong[0]]}, not {want[wrong[0]]}")


def post(part, generator, kind, datatype, count, redop, root):
    """Posts one op on every process. @return (works, what each process has to have in the end)."""
    size = len(part.processes)
    blocks = size * count if kind == "reduce_scatter" else count
    values = [random_values(generator, blocks, datatype) for _ in range(size)]
    given = part.by_rank(values)
    factors = [None] * size
    if redop == "premul_sum":
        factors = [(-1) ** p / (p + 3.0) for p in range(size)]
    multiplied = part.by_rank(factors) if factors[0] else None
    wants = [None] * size
    works = []
    for p, group in enumerate(part.group):
        if kind == "all_reduce":
            works.append(group.all_reduce(values[p].copy(), redop, dtype=datatype,
                                          factor=factors[p]))
        elif kind == "reduce":
            works.append(group.reduce(values[p].copy(), root, redop, dtype=datatype,
                                      factor=factors[p]))
        elif kind == "reduce_scatter":
            works.append(group.reduce_scatter(values[p].copy(), op=redop, dtype=datatype,
                                              factor=factors[p]))
        elif kind == "broadcast":
            works.append(group.broadcast(values[p].copy(), root, dtype=datatype))
        elif kind == "all_gather":
            out = np.empty(size * count, values[p].dtype)
            works.append(group.all_gather(values[p].copy(), out, dtype=datatype))
        else:
            works.append(group.barrier())
    if kind == "all_reduce":
        wants = [reference.all_reduce(given, datatype, redop, multiplied)] * size
    elif kind == "reduce":
        wants[root] = reference.reduce_to(given, datatype, redop, part.ranks[root], multiplied)
    elif kind == "reduce_scatter":
        for p in range(size):
            block = [[a[p * count:(p + 1) * count] for a in arrays] for arrays in given]
            wants[p] = reference.reduce_to(block, datatype, redop, part.ranks[p], multiplied)
    elif kind == "broadcast":
        wants = [values[root]] * size
    elif kind == "all_gather":
        wants = [np.concatenate(values)] * size
    return works, wants


def every_collective(parts, generator, what):
    """One op of each kind after the other, on all groups at once."""
    ops = 0
    for number, count in enumerate((0, 1, 65, 5000)):
        for datatype in ("fp32", "bf16", "int8"):
            for kind in ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather",
                         "barrier"):
                redops = reference.redops_of(datatype)
                redops += ["premul_sum"] * (datatype != "int8")
                redop = redops[(number + ops) % len(redops)]
                posted = [post(part, generator, kind, datatype, count, redop,
                               (ops + number) % len(part.processes)) for part in parts]
                for part, (works, wants) in zip(parts, posted):
                    for p, (work, want) in enumerate(zip(works, wants)):
                        got = work.wait(WAIT_S)
                        if want is not None:
                            same(got, want, f"{what}: {kind} {redop} of {count} {datatype}, "
                                            f"process {p} of {part.processes}")
                ops += 1
    print(f"{what}: {ops} ops in each of {len(parts)} groups, the reference's bits", flush=True)


def make_and_leave(clients, infos, many, sockets):
    """Groups of random parts of the job, one after the other, each with an op."""
    dice = random.Random(5)
    for number in range(many):
        processes = dice.sample(range(len(clients)), dice.randint(1, len(clients)))
        part = Part(clients, infos, processes)
        works = [group.all_reduce(np.full(3, p + 1, "int32")) for p, group in enumerate(part.group)]
        for work in works:
            if work.wait(WAIT_S)[0] != len(processes) * (len(processes) + 1) // 2:
                raise SystemExit(f"group {number}: the sum is wrong")
        part.leave()
    for socket in sockets:
        left = gradwire.daemon_status(socket)["groups"]
        if left:
            raise SystemExit(f"{socket} still has groups: {json.dumps(left)}")
    print(f"{many} groups made and left", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs=3)
    parser.add_argument("--many", type=int, default=0)
    arguments = parser.parse_args()
    generator = np.random.default_rng(11)
    places = [0, 0, 1, 1, 2, 2, 1, 1]  # the daemon of each of the job's processes
    clients = [gradwire.Client(arguments.sockets[place]) for place in places]
    infos = [client.describe() for client in clients]
    if arguments.many:
        make_and_leave(clients, infos, arguments.many, arguments.sockets)
        return 0
    for what, sets in (
            ("one process beside three", [[0, 2, 3, 6]]),
            ("any order", [[4, 0, 2]]),
            ("any order, uneven", [[5, 2, 0, 3, 4, 7, 1]]),
            ("one host alone", [[1, 0]]),
            ("one process alone", [[4]]),
            ("parts that overlap", [[5, 0, 3], [0, 1, 2, 3], [3, 4], [7, 6, 2, 5, 1, 0, 4, 3]])):
        parts = [Part(clients, infos, processes) for processes in sets]
        every_collective(parts, generator, what)
        for part in parts:
            part.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
