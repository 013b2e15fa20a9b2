#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""members.py SOCKET: two members of one rank, of which one is late: with an op, with leaving, and
at last it closes its client. Prints what the other one is told each time."""

import random
import sys
import threading

import numpy as np

import gradwire


def told(wanted, what, *arguments):
    """@return the text of the error that it raises; again where the daemon was too busy to say."""
    for _ in range(20):
        try:
            what(*arguments)
        except gradwire.GradwireError as error:
            text = f"{error.code.name}: {error}"
            if wanted in text:
                break
        else:
            raise SystemExit("no error")
    return text


def until_told(group):
    while True:
        try:
            group.check()
        except gradwire.GradwireError as error:
            return error


def main():
    clients = [gradwire.Client(sys.argv[1], request_timeout=2) for _ in range(2)]
    info = clients[0].describe()
    print("node:", clients[0].info()["numa_node"])
    group_id = random.getrandbits(63)

    def join_all(epoch):
        groups = [None, None]

        def join(member):
            groups[member] = clients[member].join(group_id, epoch, 0, [info], member, 2)

        threads = [threading.Thread(target=join, args=(member,)) for member in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return groups

    groups = join_all(1)
    value = np.ones(8, "float32")
    work = groups[0].all_reduce(value)
    print("op:", told("member", work.wait, 0.2))
    other = np.ones(8, "float32")
    groups[1].all_reduce(other).wait(60)
    work.wait(60)
    print("leave:", told("member", groups[0].leave))
    groups[1].leave()
    groups[0].leave()
    for group in groups:
        group.close()

    groups = join_all(2)
    clients[1].close()
    print("close:", until_told(groups[0]))


if __name__ == "__main__":
    main()
