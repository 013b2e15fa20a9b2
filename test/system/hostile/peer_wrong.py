#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""peer_wrong.py DEVICE SOCKET SOCKET: the peer of test/peer, at DEVICE, sends daemon 0 packets of
every kind, each wrong in one field, while ops and transfers between the two are under way. Each is
dropped for the reason that doc/protocol gives, and counted once; then the ops end with the right
sums."""

import argparse
import time

import numpy as np

from peer import frames, sums, wire, wrong
from peer.net import require, udp_frame
from peer.ops import Call
from peer.sealing import WITH_HELLO_KEYS
from peer.story import Stage, compare

NAMES = {number: name.lower() for name, number in vars(wire).items()
         if name.isupper() and isinstance(number, int) and name in (
             "HELLO", "HELLO_ACK", "DATA", "PING", "ACK", "ABORT", "BYE", "BYE_ACK", "CHECK",
             "CONTRIBUTION", "RECEIPT", "INQUIRY", "PIECE", "OFFER", "PULL", "TILE_PIECE",
             "TILE_CALL", "TILE_PULL")}
# Another group's packets come twice, or late, whatever happens here.
NOISE = ("duplicate", "foreign", "unknown_group")
LIMIT_S = 20
BYTES, TAG = 20_000, 3


class Scene:
    """A group of the peer (rank 0) and daemon 0, in which the daemon waits for the peer: for
    contributions to op 1, which the peer has posted, for data of op 2 and a transfer each way."""

    def __init__(self, stage, peer):
        self.stage, self.peer = stage, peer
        self.meeting = stage.meet(peer, stage.clients[0])
        self.group, self.client = self.meeting.groups
        self.lane = self.group.lanes[0]
        self.link = self.lane.down
        self.calls = (Call(wire.ALL_REDUCE, "fp32", 3000, tag=5),
                      Call(wire.ALL_REDUCE, "fp32", 20_000, tag=6))
        self.inputs = [self.meeting.make_inputs(call) for call in self.calls]
        self.works = []
        self.outputs = [self.meeting.post_client(call, inputs, 1, self.works)
                        for call, inputs in zip(self.calls, self.inputs)]
        self.moved = np.arange(BYTES, dtype="u4").astype("u1")
        self.got = np.zeros(BYTES, "u1")
        self.works += [self.client.send(self.moved, 0, tag=TAG),
                       self.client.recv(self.got, 0, tag=TAG)]
        self.ops = [self.group.post(self.calls[0], self.inputs[0][0])]
        pair = self.group.pairs[0, 1]
        self.held, pair.to_send = pair.to_send, []
        stage.network.run_until(
            lambda: self.link.posted == 2 and not pair.missing and
            (0, 1) in self.group.transfers.echo,
            "the daemon says what it has posted")
        self.settle()

    def settle(self):
        """Lets what is under way come to rest."""
        self.stage.network.run_until(lambda: not self.link.waiting, "pings are acknowledged")

    def right(self, kind):
        """A packet of this kind as the daemon would take it."""
        group = self.group
        payload = b""
        if kind in (wire.HELLO, wire.HELLO_ACK):
            fields, payload = self.lane.greeting(1), bytes(group.payload_bytes - 72)
        elif kind == wire.DATA:
            fields = {**self.calls[1].fields(), "op_seq": 2, "hop": 0, "chunk": 0}
            payload = self.inputs[1][0][:352].tobytes()
        elif kind == wire.CONTRIBUTION:
            fields = {**self.calls[0].fields(), "op_seq": 1, "chunk": 0, "received_below": 0}
            payload = self.inputs[0][0][:352].tobytes()
        elif kind in (wire.PIECE, wire.OFFER):
            fields = {"sequence": 1, "bytes": BYTES, "call_tag": TAG, "source": 0, "destination": 1}
            payload = self.moved[:1408].tobytes() if kind == wire.PIECE else b""
        elif kind == wire.PULL:
            fields = {"sequence": 1, "wanted": 0, "source": 1, "destination": 0}
        elif kind == wire.ABORT:
            fields, payload = {"code": 4}, b"what never was"
        elif kind == wire.CHECK:
            fields = {"op_seq": 2, "stalled_ns": 0}
        elif kind == wire.ACK:
            fields = {"credit": 1, "posted": 1}
        else:
            fields = {}
        number, self.link.next_number = self.link.next_number, self.link.next_number + 1
        common = {"lane": 0, "tag": group.tag, "number": number, "from_rank": 0,
                  "token": self.link.token_out}
        if kind in wire.TILES:
            return wrong.right_tile(kind, common)
        return wire.encode(kind, common, fields, payload)

    def sealed(self, packet, renumber=True):
        """As a rank of the group sends it, if its packets are sealed: with a right tag, and wrong
        in what it is wrong in. Under a new number, since one that was authenticated is taken."""
        seals, places = self.link.seals, wire.COMMON
        if seals is None or len(packet) < wire.HEADER:
            return packet
        packet = bytearray(packet)
        wrong_by = (wrong.read(wire.with_header_crc(bytearray(packet)), places["header_crc"]) ^
                    wrong.read(packet, places["header_crc"]))
        if renumber and wrong.read(packet, places["number"]) < self.link.next_number:
            wire.put(packet, places["number"], self.link.next_number)
            self.link.next_number += 1
        if wrong.read(packet, places["number"]) <= wire.NUMBER_MAX:
            out = bytearray(seals.seal(packet))
        else:  # no key is that of its generation
            packet[places["flags"][0]] |= self.group.keys.flag
            out = wire.with_header_crc(packet + bytes(self.group.keys.tag_bytes))
        wire.put(out, places["header_crc"], wrong.read(out, places["header_crc"]) ^ wrong_by)
        return out

    def give(self, packet):
        """@return what was sent to the daemon."""
        packet = bytes(self.sealed(packet))
        self.stage.network.send(self.peer.address, "10.78.0.1", 18515, 18515, packet)
        return packet

    def not_sealed(self, kind, what):
        """Whether a case is one of packets that are not sealed."""
        if self.group.keys is None:
            return False
        name, *value = what.split()
        number = int(value[0], 16) if name in ("flags", "number") else 0
        # Flags that say how it is sealed; a number so high that what comes after it is too old, and
        # 0 again, which was taken.
        return name == "flags" and number & 6 or name == "number" and (
            number > wire.NUMBER_MAX and kind in WITH_HELLO_KEYS or
            number == 0 and kind != wire.HELLO)

    def tokens(self):
        """Not the link's: a bit off, that of the other direction, none."""
        token = self.link.token_out
        return token ^ 1, token ^ 1 << 63, self.link.token_in, 0

    def end(self):
        """The peer does its part, and everything is right."""
        transfers = self.group.transfers
        ends = (transfers.receive(1, BYTES, tag=TAG), transfers.send(1, self.moved.tobytes(), TAG))
        self.group.pairs[0, 1].to_send = self.held
        # Sent before anything else comes: a receipt may be of a chunk that twice() sent.
        self.group.tick(time.monotonic_ns())
        ops = self.ops + [self.group.post(self.calls[1], self.inputs[1][0])]
        self.stage.network.run_until(
            lambda: all(self.group.is_done(op) for op in ops) and all(e.done for e in ends) and
            all(work.is_done() for work in self.works), "ops end after all that was wrong")
        for call, inputs, op, output in zip(self.calls, self.inputs, ops, self.outputs):
            compare(call, sums.of_call(call, inputs), [op.output, output], "after all")
        require(self.got.tobytes() == bytes(ends[0].data) == self.moved.tobytes(), "what was moved")
        self.meeting.leave()


class Judge:
    """Sends, and compares what is counted."""

    def __init__(self, stage, scene, survey):
        self.stage, self.scene, self.survey = stage, scene, survey
        self.sent, self.failed = 0, 0

    def expect(self, what, reason, send):
        """send() makes the daemon drop one packet for the reason, and none for another."""
        before, after = self.stage.drops(), {}
        send()
        self.sent += 1
        deadline = time.monotonic() + (0.3 if self.survey else LIMIT_S)
        while time.monotonic() < deadline:
            self.stage.network.poll(0.0005)
            after = self.stage.drops()
            if after[reason] > before[reason]:
                break
        rose = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        fine = rose.get(reason) == 1 or (reason in NOISE and rose.get(reason, 0) > 1)
        fine = fine and not set(rose) - {reason, *NOISE}
        if self.scene.group.reason is not None:
            rose["aborted"] = str(self.scene.group.reason)
            fine = False
        if not fine:
            self.failed += 1
            text = f"{what} is dropped as {reason}, not {rose or 'taken'}"
            require(self.survey, text)
            print(text, flush=True)

    def packet(self, what, packet, reason):
        self.raw(what, self.scene.sealed(packet, what.find(": number ") < 0), reason)

    def raw(self, what, packet, reason):
        self.expect(what, reason, lambda: self.stage.network.send(
            self.scene.peer.address, "10.78.0.1", 18515, 18515, bytes(packet)))


def all_kinds(stage, peer, survey):
    """@return the number of packets, and how many were not dropped as they should."""
    scene = Scene(stage, peer)
    judge = Judge(stage, scene, survey)
    for kind, name in NAMES.items():
        # No group has tiles yet.
        of_kind = wrong.without_tiles if kind in wire.TILES else wrong.of_kind
        cases = list(of_kind(kind, scene.right(kind), scene.tokens()))
        if kind == wire.ACK:
            cases += wrong.acknowledgement(scene.right(kind), 1, 2)
        for what, packet, reason in cases:
            if scene.not_sealed(kind, what):
                continue
            if what.startswith("number ") and scene.group.keys and kind not in WITH_HELLO_KEYS and (
                    reason == "malformed" and wrong.read(packet, wire.COMMON["number"])):
                reason = "generation"
            judge.packet(f"{name}: {what}", packet, reason)
            if scene.group.reason is not None:
                scene = judge.scene = Scene(stage, peer)
        scene.settle()
    scene.end()
    return judge


def wrong_frames(stage, judge):
    """Around a ping; and what is no fault, after which the ping is acknowledged."""
    scene, daemon = judge.scene, "10.78.0.1"
    seen = set()

    def note(packet, *_):
        if packet.type == wire.ACK and packet.ranges():
            seen.update(range(packet.ranges()[0][0], packet.ranges()[0][1] + 1))

    def frame_of(packet):
        return udp_frame(stage.network.macs[daemon], scene.peer.address, daemon, 18515, 18515,
                         bytes(scene.sealed(packet, renumber=False)))

    for what, frame, reason in frames.wrong(frame_of(scene.right(wire.PING))):
        judge.expect(what, reason, lambda frame=frame: stage.network.send_frame(frame))
    scene.peer.on_packet = note
    count = len(list(frames.right(frame_of(scene.right(wire.PING)))))
    for i in range(count):
        packet = scene.right(wire.PING)
        number = wrong.read(packet, wire.COMMON["number"])
        what, frame = list(frames.right(frame_of(packet)))[i]
        before = stage.drops()
        stage.network.send_frame(frame)
        stage.network.run_until(lambda number=number: number in seen, f"{what} is no fault")
        rose = {name: n - before[name] for name, n in stage.drops().items()
                if n != before[name] and name not in NOISE}
        require(not rose, f"{what} is no fault: {rose}")
    marks = []
    scene.peer.on_packet = lambda packet, *_: packet.type == wire.ACK and marks.append(
        packet.ecn_ce)
    stage.network.run_until(lambda: marks, "an acknowledgement comes")
    first, marked = marks[-1], frame_of(scene.right(wire.PING))
    stage.network.send_frame(frames.changed(marked, frames.IP + 1, "B", 3))
    stage.network.run_until(lambda: marks[-1] == first + 1, "CE is counted")
    scene.peer.on_packet = None


def twice(stage, judge):
    """What was taken and comes again, or too late, or too early."""
    scene = judge.scene
    for kind in (wire.PING, wire.DATA, wire.CONTRIBUTION, wire.PIECE):
        packet = scene.right(kind)
        if kind != wire.PING:
            chunk = {wire.DATA: scene.inputs[1][0], wire.CONTRIBUTION: scene.inputs[0][0],
                     wire.PIECE: scene.moved}[kind]
            packet = wire.seal(packet[:wire.HEADER] + chunk.tobytes()[:1408])
        judge.raw(f"{NAMES[kind]} twice", scene.give(packet), "duplicate")
        again = scene.right(kind)
        if kind != wire.PING:
            again = wire.seal(again[:wire.HEADER] + packet[wire.HEADER:])
            judge.packet(f"{NAMES[kind]} under a new number", again, "duplicate")
    # Numbers so far apart that the receiver cannot keep all holes.
    old = {kind: scene.right(kind) for kind in (wire.DATA, wire.PING)}
    for _ in range(300):
        scene.link.next_number += 1
        ping = scene.right(wire.PING)
        scene.give(ping)
        stage.network.poll()
    for what, kind, reason in (("data with a number too old to tell", wire.DATA, "replay"),
                               ("a ping with one", wire.PING, "duplicate")):
        judge.raw(what, scene.sealed(old[kind], renumber=False), reason)
    # Op 3 is posted nowhere.
    early = [scene.right(wire.CONTRIBUTION) for _ in range(3)]
    for chunk, packet in enumerate(early):
        packet = wrong.changed(packet, wire.FIELDS[wire.CONTRIBUTION]["op_seq"], 3)
        packet = wrong.changed(packet, wire.FIELDS[wire.CONTRIBUTION]["chunk"], chunk)
        if chunk < 2:
            scene.give(packet)
        else:
            judge.packet("a third early contribution", packet, "eager_overflow")
    scene.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("device")
    parser.add_argument("sockets", nargs=2)
    parser.add_argument("--survey", action="store_true", help="goes on after what is not as said")
    arguments = parser.parse_args()
    stage = Stage(arguments.device, arguments.sockets)
    peer = stage.peer(direct_kib=64, two_step_kib=16)
    judge = all_kinds(stage, peer, arguments.survey)
    print(f"{judge.sent} packets, {judge.failed} not dropped as they should", flush=True)
    judge.scene = Scene(stage, peer)
    wrong_frames(stage, judge)
    print("frames", flush=True)
    twice(stage, judge)
    print("twice", flush=True)
    return 1 if judge.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
