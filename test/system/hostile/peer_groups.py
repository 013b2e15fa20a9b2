#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""peer_groups.py DEVICE SOCKET SOCKET: the peer of test/peer, at DEVICE, and two daemons form
groups of two to five ranks and do every op in every shape, and transfers. Every bit of every result
is compared, and the daemons must find nothing wrong with what the peer sends."""

import sys
import time

import numpy as np

from peer import vectors, wire
from peer.net import require
from peer.ops import Call
from peer.story import Stage

ALL = wire.ALL_REDUCE
WIDE = ("fp64", "int64")
# Reasons for which a daemon drops what is right: it is of a group that is over, or comes twice.
HARMLESS = ("foreign", "unknown_group", "duplicate", "state")


def every_collective(meeting, counts, datatypes):
    last = len(meeting.groups) - 1
    for datatype in datatypes:
        for count in counts:
            redops = ("max", "bxor") if "int" in datatype else ("avg", "min")
            for redop in ("sum", *redops):
                meeting.check(Call(ALL, datatype, count, redop, tag=count))
            for root in (0, last):
                meeting.check(Call(wire.REDUCE, datatype, count, "sum", root))
                meeting.check(Call(wire.BROADCAST, datatype, count, root=root))
            meeting.check(Call(wire.ALL_GATHER, datatype, count))
            meeting.check(Call(wire.REDUCE_SCATTER, datatype, count))
        meeting.check(Call(wire.BARRIER, tag=7))
        meeting.check(Call(ALL, datatype, 0))


def pairs(stage):
    """Two ranks, in both orders: exchanges up to 4 KiB, the ring above."""
    peer, daemon = stage.peer(), stage.clients[0]
    for members in ((peer, daemon), (daemon, peer)):
        meeting = stage.meet(*members)
        for datatype in ("fp32", "fp64", "fp16", "bf16", "int8", "int32", "int64", "uint8"):
            for count in (1, 7, 1023, 20011):
                meeting.check(Call(ALL, datatype, count))
        meeting.check(Call(ALL, "fp32", 100_000))
        every_collective(meeting, (1, 3001), ("fp32",))
        meeting.leave()


def rings(stage):
    """Three and four ranks without direct ops."""
    a, b = stage.clients
    p, q = stage.peers[0], stage.peer()
    before = stage.counter("ops_direct")
    for members in ((p, a, b), (p, a, q), (p, q, a), (p, a, q, b)):
        meeting = stage.meet(*members)
        every_collective(meeting, (1, 7, 1023, 5003), ("fp32", "bf16"))
        meeting.leave()
    require(stage.counter("ops_direct") == before, "ops went by the ring")


def direct(stage):
    """In one hop, by owners, in two steps."""
    a, b = stage.clients
    p, r = stage.peers[0], stage.peer(direct_kib=64, two_step_kib=16)
    owner = stage.peer(direct_kib=4, two_step_kib=16, wants_to_own=1)
    for members in ((r, a), (a, p, b), (r, a, p), (p, a, b), (owner, a, b), (owner, a, p, b)):
        names = {"ops_direct": 0, "ops_two_step": 0}
        before = {name: stage.counter(name) for name in names}
        meeting = stage.meet(*members)
        every_collective(meeting, (1, 7, 1023), ("fp32", "fp16"))
        meeting.check(Call(ALL, "fp32", 3000))
        meeting.check(Call(ALL, "int32", 5600))
        meeting.leave()
        rose = {name: stage.counter(name) - before[name] for name in names}
        wanted = members[0] is not p
        require((rose["ops_direct"] > 0) == wanted, f"rank 0 says whether ops are direct: {rose}")
        require((rose["ops_two_step"] > 0) == (wanted and len(members) > 2),
                f"ops of {len(members)} ranks in two steps: {rose}")


def gathered(stage):
    a, b = stage.clients
    g = stage.peer(direct_kib=64, two_step_kib=16, gathered_ranks=2)
    p, q = stage.peers[:2]
    for members in ((g, a, b), (g, a, p, q, b)):
        before = stage.counter("ops_gathered")
        meeting = stage.meet(*members)
        every_collective(meeting, (1, 7, 300), ("fp32", "int8"))
        meeting.leave()
        require(stage.counter("ops_gathered") > before, "ops were gathered")


def transfers(stage):
    """Both ways, of all sizes from nothing to more than one pull; and calls that are made of
    them."""
    daemon = stage.clients[0]
    p, q = stage.peers[:2]
    for members, alone in (((p, daemon), False), ((daemon, p), False), ((q, daemon, p), False),
                           ((p, daemon), True), ((daemon, p), True)):
        meeting = stage.meet(*members, alone=alone)
        here = members.index(daemon)
        group = meeting.groups[here]
        for rank, peer in enumerate(meeting.groups):
            if rank == here:
                continue
            for size in (0, 1, 1408, 2 * 1408, 2 * 1408 + 1, 60_001, 200_000):
                sent = np.arange(size, dtype="u4").astype("u1") ^ rank
                one_transfer(stage, size, peer.transfers.send(here, sent.tobytes(), tag=3),
                             group.recv, rank, sent)
                one_transfer(stage, size, peer.transfers.receive(here, size, tag=4),
                             group.send, rank, sent)
        if alone:
            stage.network.run_until(lambda m=meeting: is_quiet(stage, m.peers()[0]),
                                    "nothing goes while nobody waits")
        meeting.leave()


def is_quiet(stage, peer):
    """Whether nothing came from the daemon or went there in ten ping intervals."""
    before, until = (peer.came, peer.went), time.monotonic() + 0.5
    stage.network.run_until(lambda: time.monotonic() > until, "some ping intervals pass")
    return (peer.came, peer.went) == before


def one_transfer(stage, size, end, function, rank, sent):
    value = sent.copy() if function.__name__ == "send" else np.zeros(size, "u1")
    work = function(value, rank, tag=end.tag)
    stage.network.run_until(lambda: work.is_done() and end.done, f"{function.__name__} of {size}")
    require(bytes(end.data) == value.tobytes() == sent.tobytes(),
            f"the {size} bytes of a transfer by {function.__name__}")


def main():
    vectors.check_all()
    print("the page's vectors", flush=True)
    stage = Stage(sys.argv[1], sys.argv[2:])
    for part in (pairs, rings, direct, gathered, transfers):
        part(stage)
        print(part.__name__, flush=True)
    # No daemon sends packets of tiles yet.
    missing = set(wire.FIELDS) - {wire.CHECK, wire.ABORT, *wire.TILES} - stage.kinds
    require(not missing, f"daemons sent packets of all types, also of {missing}")
    for daemon in range(2):
        found = {name: n for name, n in stage.drops(daemon).items() if n and name not in HARMLESS}
        require(not found, f"daemon {daemon} drops nothing that the peer sends: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
