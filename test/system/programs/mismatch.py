#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""mismatch.py SOCKET...: clients of one group call things that do not fit together, one difference
at a time. Every client has to get an error that names two ranks (or two members of a rank) that
differ, and what both called; so does every op that is posted afterwards."""

import argparse
import re
import sys
import threading

import numpy as np

import gradwire
from ring import Ring, new_group_id

WAIT_S = 30
COMMON = {"count": 1000, "datatype": "fp32", "redop": "sum", "tag": 7}
CALL = r"called all-reduce (\w+) of (\d+) (\w+) with tag (\d+)"
CALLS = re.compile(r"rank (\d+) called (.*?), rank (\d+) called (.*?)(?: \(|$)")
OF_RANKS = re.compile(rf"rank (\d+) {CALL}, rank (\d+) {CALL}")
OF_MEMBERS = re.compile(rf"member (\d+) of rank (\d+) {CALL}, member (\d+) {CALL}")


def text_of(call):
    return (call["redop"], str(call["count"]), call["datatype"], str(call["tag"]))


def post(ring, rank, member, call):
    array = np.zeros(call["count"], {"fp32": "float32", "int32": "int32"}[call["datatype"]])
    return ring.groups[rank][member].all_reduce(array, call["redop"], tag=call["tag"])


def error_of(act):
    """@return the text of the error that act() ends with."""
    try:
        act()
    except gradwire.GradwireError as error:
        if error.code != gradwire.Status.ABORTED:
            raise SystemExit(f"{error.code.name} and not ABORTED: {error}")
        return str(error)
    raise SystemExit("an op of calls that do not fit together was done")


def attempt(call):
    """Makes a call, which fails if the calls of others have ended the group already.
    @return what waits for its end."""
    try:
        work = call()
    except gradwire.GradwireError as error:
        if error.code != gradwire.Status.ABORTED:
            raise
        refused = error

        def fail():
            raise refused
        return fail
    return lambda: work.wait(WAIT_S)


def check_ranks(text, calls):
    """The text names two ranks, the lower first, and what they called, which was not the same."""
    found = OF_RANKS.search(text)
    if not found:
        raise SystemExit(f"not two ranks and what they called: {text}")
    first, second = int(found[1]), int(found[6])
    if not first < second:
        raise SystemExit(f"rank {first} before rank {second}: {text}")
    for rank, said in ((first, found.groups()[1:5]), (second, found.groups()[6:10])):
        if said != text_of(calls[rank]):
            raise SystemExit(f"rank {rank} called {text_of(calls[rank])}: {text}")
    if text_of(calls[first]) == text_of(calls[second]):
        raise SystemExit(f"ranks {first} and {second} called the same: {text}")


def check_members(text, rank, calls):
    found = OF_MEMBERS.search(text)
    if not found or int(found[2]) != rank:
        raise SystemExit(f"not two members of rank {rank} and what they called: {text}")
    for member, said in ((int(found[1]), found.groups()[2:6]), (int(found[7]), found.groups()[7:])):
        if said != text_of(calls[member]):
            raise SystemExit(f"member {member} called {text_of(calls[member])}: {text}")


def run_collectives(sockets, what, calls):
    """calls[rank]: (what the text has to say of it, what posts it on a group)."""
    with Ring(sockets) as ring:
        for work in [post(ring, r, 0, COMMON) for r in range(ring.nranks)]:
            work.wait(WAIT_S)
        waits = [attempt(lambda c=call, r=rank: c(ring.groups[r][0]))
                 for rank, (_, call) in enumerate(calls)]
        # Who only sends may be done before the others see what it sent; what it posts next is told.
        texts = [error_of(lambda r=r: post(ring, r, 0, COMMON).wait(WAIT_S))
                 for r in range(ring.nranks)]
        del waits  # they kept their arrays
        for text in texts:
            found = CALLS.search(text)
            if not found:
                raise SystemExit(f"{what}: not two ranks and what they called: {text}")
            first, second = int(found[1]), int(found[3])
            if not first < second or "op 2" not in text:
                raise SystemExit(f"{what}: {text}")
            for rank, said in ((first, found[2]), (second, found[4])):
                if said != calls[rank][0]:
                    raise SystemExit(f"{what}: rank {rank} called {calls[rank][0]}: {text}")
            if calls[first][0] == calls[second][0]:
                raise SystemExit(f"{what}: ranks {first} and {second} called the same: {text}")
    print(f"{what}: {len(texts)} errors, such as \"{texts[0]}\"", flush=True)


def collective_cases(nranks):
    """(what, calls) in which one rank differs."""
    one, all_of = 1000, 1000 * nranks

    def array(count):
        return np.zeros(count, "float32")

    def reduce_to(root):
        return (f"reduce sum of {one} fp32 to process {root} with tag 7",
                lambda g: g.reduce(array(one), root, tag=7))

    def broadcast_from(root):
        return (f"broadcast of {one} fp32 from process {root} with tag 7",
                lambda g: g.broadcast(array(one), root, tag=7))

    all_reduce = (f"all-reduce sum of {one} fp32 with tag 7",
                  lambda g: g.all_reduce(array(one), tag=7))
    gather = (f"all-gather of {one} fp32 with tag 7",
              lambda g: g.all_gather(array(one), array(all_of), tag=7))
    scatter = (f"reduce-scatter sum of {one} fp32 with tag 7",
               lambda g: g.reduce_scatter(array(all_of), array(one), tag=7))
    barrier = ("barrier with tag 7", lambda g: g.barrier(tag=7))
    kinds = [all_reduce, gather, scatter, reduce_to(0), broadcast_from(0), barrier]
    for number, common in enumerate(kinds):
        other = kinds[(number + 1) % len(kinds)]
        odd = number % nranks
        yield (f"{other[0].split()[0]} on rank {odd}, {common[0].split()[0]} elsewhere",
               [other if rank == odd else common for rank in range(nranks)])
    for odd in range(nranks):
        if odd != 0:  # else nobody takes itself for the root, nothing is sent, and timeouts end it
            yield (f"root of rank {odd}'s broadcast",
                   [broadcast_from(int(rank == odd)) for rank in range(nranks)])
        if odd != 1:  # else nobody takes itself for the rank that begins
            yield (f"root of rank {odd}'s reduce",
                   [reduce_to(int(rank == odd)) for rank in range(nranks)])


def run_case(sockets, what, calls, members=1, at=None):
    """calls[rank][member]; at: the rank whose members differ."""
    with Ring(sockets, members) as ring:
        everyone = [(r, m) for r in range(ring.nranks) for m in range(members)]
        for work in [post(ring, r, m, COMMON) for r, m in everyone]:
            work.wait(WAIT_S)  # the group works
        waits = [attempt(lambda r=r, m=m: post(ring, r, m, calls[r][m])) for r, m in everyone]
        texts = [error_of(wait) for wait in waits]
        later = [error_of(lambda r=r, m=m: post(ring, r, m, COMMON).wait(WAIT_S))
                 for r, m in everyone]
        for text in texts + later:
            if at is None:
                check_ranks(text, [c[0] for c in calls])
            else:
                check_members(text, at, calls[at])
            if "op 2" not in text:
                raise SystemExit(f"it does not name the op: {text}")
    print(f"{what}: {len(texts)} errors, such as \"{texts[0]}\"", flush=True)


def check_epochs(sockets):
    """Ranks that join one group with two epochs hear of both, and of no MTU."""
    clients = [gradwire.Client(socket) for socket in sockets[:2]]
    infos = [client.describe() for client in clients]
    group_id = new_group_id()
    errors = [None, None]

    def join(rank):
        try:
            clients[rank].join(group_id, 5 + rank, rank, infos, timeout=3.0)
        except gradwire.GradwireError as error:
            errors[rank] = str(error)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank, error in enumerate(errors):
        says = f"joins epoch {6 - rank} of this group, this rank epoch {5 + rank}"
        if error is None or says not in error or "MTU" in error:
            raise SystemExit(f"rank {rank}, in whose error \"{says}\" has to be: {error}")
    print(f"two epochs: {errors[0]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--all-reduces", action="store_true", help="calls of all-reduces alone")
    arguments = parser.parse_args()
    sockets = arguments.sockets
    nranks = len(sockets)
    others = {"count": 1001, "datatype": "int32", "redop": "max", "tag": 8}
    for key, value in others.items():
        for odd in range(nranks):
            calls = [[COMMON | {key: value} if rank == odd else COMMON] for rank in range(nranks)]
            run_case(sockets, f"{key} of rank {odd}", calls)
    run_case(sockets, "every rank another count",
             [[COMMON | {"count": 1000 + rank}] for rank in range(nranks)])
    calls = [[COMMON, COMMON] for _ in range(nranks)]
    calls[1][1] = COMMON | {"count": 999}
    run_case(sockets, "members of rank 1", calls, members=2, at=1)
    for what, calls in [] if arguments.all_reduces else collective_cases(nranks):
        run_collectives(sockets, what, calls)
    check_epochs(sockets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
