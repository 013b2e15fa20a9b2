#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""folding.py --meet DIRECTORY [options] SOCKET...: the processes of a group that has ranks without
members beside them. One member of each socket's daemon joins; the ranks without members join by
python -m gradwire.fold. All-reduces of every datatype and redop are compared with the reference's
bits, as if there were no such ranks. With --until-error sums are done without pause until there is
an error, which goes to that file."""

import argparse
import sys
import threading
import time

import numpy as np

import gradwire
from gradwire import rendezvous
from reference import reference
from ring import WAIT_S, check, new_group_id, random_values


class Processes:
    """A client at each socket, in one group."""

    def __init__(self, arguments):
        self.clients = [gradwire.Client(socket) for socket in arguments.sockets]
        self.groups = [None] * len(self.clients)
        store = rendezvous.DirectoryStore(arguments.meet)
        errors = []

        def join(rank):
            try:
                self.groups[rank] = rendezvous.form_group(
                    self.clients[rank], store, rank, len(self.clients) + arguments.folding,
                    epoch=1, timeout=arguments.join_timeout, folding_ranks=arguments.folding)
            except gradwire.GradwireError as error:
                errors.append(f"rank {rank}: {error}")

        threads = [threading.Thread(target=join, args=(rank,)) for rank in range(len(self.clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise SystemExit("the group was not formed: " + "; ".join(errors))

    def all_reduce(self, inputs, datatype, redop):
        """@return outputs[rank][0]."""
        places = []
        for client, values in zip(self.clients, inputs):
            kind = reference.NUMPY_TYPES[datatype]
            memory = client.allocate(max(values.nbytes, 1)).array("uint8")
            array = memory[:values.nbytes].view(kind)
            array[:] = values
            places.append(array)
        works = [group.all_reduce(array, redop, dtype=datatype)
                 for group, array in zip(self.groups, places)]
        for work in works:
            work.wait(WAIT_S)
        return [[array] for array in places]

    def leave(self):
        for group in self.groups:
            group.leave()


def uneven(sockets):
    """Processes in an order of their own, two of them at one daemon; the last daemon has none. All
    of it in this process, by Client.join_processes()."""
    clients = [gradwire.Client(sockets[place]) for place in (1, 0, 0)]
    folding = gradwire.Client(sockets[-1])
    infos = [client.describe() for client in clients]
    group_id, groups, ended = new_group_id(), [None] * 4, []

    def join(process):
        client = (clients + [folding])[process]
        groups[process] = client.join_processes(
            group_id, 1, process, infos, folding_infos=[folding.describe()])

    threads = [threading.Thread(target=join, args=(process,)) for process in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in groups:
        raise SystemExit("the group was not formed")
    if groups[3].processes != 3 or groups[3].rank_of(1) != 1:
        raise SystemExit("a rank without members counts as one with")
    try:
        groups[3].barrier()
        raise SystemExit("a rank without members called a barrier")
    except gradwire.GradwireError as error:
        if error.code != gradwire.Status.UNSUPPORTED:
            raise

    def serve():
        groups[3].serve()
        ended.append(True)

    server = threading.Thread(target=serve)
    server.start()
    for datatype in ("fp32", "bf16", "int8"):
        count = 12_345
        values = [random_values(np.random.default_rng(p), count, datatype) for p in range(3)]
        outputs = [array.copy() for array in values]
        works = [group.all_reduce(array, "sum", dtype=datatype)
                 for group, array in zip(groups, outputs)]
        for work in works:
            work.wait(WAIT_S)
        # Rank 0 is the daemon of process 0, rank 1 that of processes 1 and 2.
        expected = reference.all_reduce([values[:1], values[1:]], datatype, "sum")
        check([outputs[:1], outputs[1:]], expected, f"uneven: {count} {datatype}")
    # Members of a rank leave together.
    leaving = [threading.Thread(target=group.leave) for group in groups[:3]]
    for thread in leaving:
        thread.start()
    for thread in leaving + [server]:
        thread.join(WAIT_S)
    if not ended:
        raise SystemExit("the rank without members did not end")
    print("uneven ranks: the reference's bits", flush=True)


def until_error(processes, path, count, wire):
    """@return the error's text, of the first rank that has one."""
    arrays = [client.allocate(4 * count).array("float32") for client in processes.clients]
    rounds = 0
    while True:
        try:
            works = [group.all_reduce(array, "sum" if wire else "max", wire=wire)
                     for group, array in zip(processes.groups, arrays)]
            for work in works:
                work.wait(WAIT_S)
        except gradwire.GradwireError as error:
            with open(path, "w", encoding="utf-8") as out:
                out.write(f"{time.time_ns()} {error}\n")
            return
        rounds += 1
        if rounds == 10:
            print("running", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--meet")
    parser.add_argument("--uneven", action="store_true",
                        help="the last socket's daemon has no process, and is served here")
    parser.add_argument("--folding", type=int, default=1)
    parser.add_argument("--sizes", default="16,1000,2499,4000,10000,16383,65536,300001,4194304",
                        help="bytes of 4-byte elements, divided by 4")
    parser.add_argument("--join-timeout", type=float, default=30.0)
    parser.add_argument("--until-error")
    parser.add_argument("--count", type=int, default=10_000, help="elements of those sums")
    parser.add_argument("--wire", help="format in which those travel")
    arguments = parser.parse_args()
    if arguments.uneven:
        uneven(arguments.sockets)
        return 0
    processes = Processes(arguments)
    if arguments.until_error:
        until_error(processes, arguments.until_error, arguments.count, arguments.wire)
        return 0
    generator = np.random.default_rng(11)
    ops = 0

    def one(count, datatype, redop):
        inputs = [[random_values(generator, count, datatype)] for _ in processes.clients]
        check(processes.all_reduce([i[0] for i in inputs], datatype, redop),
              reference.all_reduce(inputs, datatype, redop), f"{redop} of {count} {datatype}")

    for size in arguments.sizes.split(","):
        one(int(size), "fp32", "sum")
        ops += 1
    for datatype in reference.NUMPY_TYPES:
        for redop in reference.redops_of(datatype):
            one(20_000 // reference.NUMPY_TYPES[datatype].itemsize * 3 + 1, datatype, redop)
            ops += 1
    print(f"{ops} ops: the reference's bits", flush=True)
    processes.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
