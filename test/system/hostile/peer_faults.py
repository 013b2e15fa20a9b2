#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""peer_faults.py DEVICE SOCKET SOCKET: groups of the peer of test/peer, at DEVICE, and daemons lose
packets one way, end by aborts from either side, by calls that differ and by a rank that leaves too
early. At last daemon 1 is told to stop."""

import os
import signal
import sys

import gradwire
import numpy as np

from peer import wire
from peer.net import require
from peer.ops import Call
from peer.story import Stage

ALL = wire.ALL_REDUCE
CODES = {number: name for name, number in wire.ABORT_CODES.items()}


def loss(stage):
    """Every 7th packet from the daemon is lost, then every 5th to it, then both."""
    daemon, other = stage.clients
    p, r = stage.peer(), stage.peer(direct_kib=64, two_step_kib=16)
    before = stage.counter("retransmissions")
    for members in ((p, daemon), (daemon, p), (r, daemon, p), (p, daemon, other)):
        meeting = stage.meet(*members)
        lossy = [group for group in meeting.peers() if group.node is p]
        for lost_in, lost_out in ((7, 0), (0, 5), (7, 5)):
            for group in lossy:
                group.lose_in, group.lose_out = lost_in, lost_out
            for count in (1, 1023, 30_011):
                meeting.check(Call(ALL, "fp32", count))
            meeting.check(Call(wire.BARRIER))
            meeting.check(Call(ALL, "int8", 0))
            meeting.check(Call(wire.REDUCE_SCATTER, "bf16", 5003))
            move(stage, meeting, members.index(daemon), members.index(p))
        meeting.leave()
        again = sum(lane.counts["sent_again"] for group in lossy for lane in group.lanes)
        require(members[0] is r or again > 0, "the peer sent again what was lost")
    require(stage.counter("retransmissions") > before, "the daemon sent again what was lost")


def move(stage, meeting, here, there):
    """A transfer of some pulls, both ways."""
    sent = np.arange(50_001, dtype="u4").astype("u1")
    out = np.zeros_like(sent)
    ends = (meeting.groups[there].transfers.send(here, sent.tobytes()),
            meeting.groups[there].transfers.receive(here, len(sent)))
    works = (meeting.groups[here].recv(out, there), meeting.groups[here].send(sent, there))
    stage.network.run_until(lambda: all(end.done for end in ends) and
                            all(work.is_done() for work in works), "transfers end under loss")
    require(out.tobytes() == bytes(ends[1].data) == sent.tobytes(), "what was moved under loss")


def told(stage, meeting, code, culprit, *texts):
    """All ranks learn of an abort: peers its code and culprit, clients of daemons a text in which
    all of these are."""
    peers = meeting.peers()
    stage.network.run_until(lambda: all(group.reason for group in peers), "peers hear the abort")
    for group in peers:
        got = (CODES[group.reason["code"]], group.reason["culprit"])
        require(got == (code, culprit), f"an abort of {code}, culprit {culprit}, not {got}")
    errors = meeting.client_errors()
    require(all(text in error for error in errors for text in texts),
            f"{texts} in what clients are told: {errors}")
    stage.network.run_until(lambda: all(group.aborts_sent >= 5 for group in peers),
                            "peers have repeated it")
    meeting.close()


def ports(stage):
    """Nothing that comes from a daemon's first source port arrives: it takes another one."""
    daemon, p = stage.clients[0], stage.peer(source_ports=2)
    meeting = stage.meet(p, daemon)
    meeting.check(Call(ALL, "fp32", 10_000))
    used = set()
    p.on_packet = lambda packet, address, source_port: used.add(source_port)
    p.deaf_to, before = 18515, stage.counter("source_port_moves")
    for count in (1, 20_000):
        meeting.check(Call(ALL, "fp32", count))
    require(used and used <= set(range(49153, 49153 + 31)), f"ports of lane 0, not {used}")
    require(stage.counter("source_port_moves") > before, "the move is counted")
    p.deaf_to = p.on_packet = None
    meeting.leave()


def aborts(stage):
    daemon, other = stage.clients
    p, q = stage.peers[0], stage.peer()
    for members in ((p, daemon), (p, daemon, q), (daemon, p, other)):
        here, there = members.index(daemon), members.index(p)
        meeting = stage.meet(*members)
        meeting.check(Call(ALL, "fp32", 100))
        meeting.groups[here].abort("the client has enough")
        told(stage, meeting, "client abort", here, "the client has enough")

        meeting = stage.meet(*members)
        meeting.groups[there].abort("client abort", detail="the peer has \x1b[31menough\x1b[0m")
        told(stage, meeting, "client abort", there, "the peer has ?[31menough?[0m")


def mismatches(stage):
    """Whatever differs is found: by chunks, by contributions, by words alone."""
    daemon = stage.clients[0]
    p, r = stage.peers[:2]
    sums = Call(ALL, "fp32", 5000, tag=1)
    for members, calls, texts in (
            ((p, daemon), (sums, Call(ALL, "fp32", 5000, tag=2)), ("tag 1", "tag 2")),
            ((daemon, p), (sums, Call(ALL, "fp32", 5001, tag=1)), ("5000 fp32", "5001 fp32")),
            ((p, daemon), (sums, Call(ALL, "int32", 5000, tag=1)), ("fp32", "int32")),
            ((p, daemon), (sums, Call(ALL, "fp32", 5000, "max", tag=1)), ("sum", "max")),
            ((r, daemon), (sums, Call(ALL, "fp32", 5000, "min", tag=1)), ("sum", "min")),
            ((p, daemon), (Call(wire.BARRIER, tag=1), Call(wire.BARRIER, tag=2)),
             ("barrier", "tag 1", "tag 2")),
            ((daemon, p), (Call(wire.BARRIER), Call(ALL, "fp32", 0)), ("barrier", "all-reduce")),
            ((p, daemon), (Call(wire.BROADCAST, "fp32", 9, root=0),
                           Call(wire.BROADCAST, "fp32", 9, root=1)), ("broadcast", "process 1"))):
        meeting = stage.meet(*members)
        for group in meeting.peers():
            group.expects_mismatch = True
        works, ranks = [], {0: calls[0], 1: calls[1]}
        for rank, call in ranks.items():
            inputs = meeting.make_inputs(call)
            if members[rank] is daemon:
                meeting.post_client(call, inputs, rank, works)
            else:
                meeting.groups[rank].post(call, inputs[rank])
        peer = meeting.peers()[0]
        stage.network.run_until(lambda: peer.reason, f"a mismatch of {texts} is found")
        told(stage, meeting, "mismatch", peer.reason["culprit"], *texts)


def transfers_differ(stage):
    daemon, p = stage.clients[0], stage.peers[0]
    for size, tag in ((8, 2), (9, 1)):
        meeting = stage.meet(p, daemon)
        meeting.peers()[0].expects_mismatch = True
        meeting.groups[0].transfers.send(1, bytes(8), tag=1)
        work = meeting.groups[1].recv(np.zeros(size, "u1"), 0, tag=tag)
        peer = meeting.peers()[0]
        stage.network.run_until(lambda: peer.reason, "a mismatch of a transfer is found")
        told(stage, meeting, "mismatch", peer.reason["culprit"], "transfer 1 of process 0",
             f"{size} bytes", f"tag {tag}")
        del work


def leaves_early(stage):
    """A bye of a rank whose neighbor has posted an op that it has not."""
    daemon, p = stage.clients[0], stage.peers[0]
    meeting = stage.meet(p, daemon)
    work = meeting.groups[1].all_reduce(np.zeros(100, "float32"))
    peer = meeting.groups[0]
    stage.network.run_until(lambda: peer.lanes[0].down.posted == 1, "the peer is told of the op")
    peer.leave()
    stage.network.run_until(lambda: peer.reason, "the daemon ends the group")
    told(stage, meeting, "peer left", 0, "left")
    del work


def checks(stage):
    """A daemon that has posted an op hands on a check that asks for it, and no other."""
    daemon, p = stage.clients[0], stage.peers[0]
    meeting = stage.meet(p, daemon)
    call = Call(ALL, "fp32", 100)
    inputs = meeting.make_inputs(call)
    works = []
    meeting.post_client(call, inputs, 1, works)
    peer, seen = meeting.groups[0], []
    link = peer.lanes[0].down
    stage.network.run_until(lambda: link.posted == 1, "the peer is told of the op")
    p.on_packet = lambda packet, *_: packet.type == wire.CHECK and seen.append(packet)
    stage.network.run_until(lambda: link.posted == 1 and not link.waiting, "the peer is told")
    for op_seq in (2, 1):
        link.send(wire.CHECK, {"op_seq": op_seq, "stalled_ns": 1 << 60, "origin": 0})
    stage.network.run_until(lambda: seen, "a check comes back")
    first = seen[0]
    require((first.op_seq, first.origin) == (1, 0), "the check of the op that is posted")
    require(first.stalled_ns < 1 << 60, "it says the smaller time")
    p.on_packet = None
    op = peer.post(call, inputs[0])
    stage.network.run_until(lambda: peer.is_done(op), "the op ends")
    stage.network.run_until(works[0].is_done, "the op ends at the daemon")
    require(len(seen) == 1, "the check of an op that is not posted goes no further")
    meeting.leave()


def stops(stage):
    """Daemon 1 is told to stop."""
    p = stage.peers[0]
    meeting = stage.meet(p, stage.clients[1])
    meeting.check(Call(ALL, "fp32", 100))
    os.kill(gradwire.daemon_status(stage.sockets[1])["daemon"]["pid"], signal.SIGTERM)
    peer = meeting.groups[0]
    stage.network.run_until(lambda: peer.reason, "the peer hears that the daemon stops")
    require(CODES[peer.reason["code"]] == "daemon stopped" and peer.reason["culprit"] == 1,
            f"an abort that says so: {peer.reason}")
    stage.network.run_until(lambda: peer.aborts_sent >= 5, "the peer answers")


def main():
    stage = Stage(sys.argv[1], sys.argv[2:])
    for part in (loss, ports, aborts, mismatches, transfers_differ, leaves_early, checks, stops):
        part(stage)
        print(part.__name__, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
