#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Peers among themselves in groups with keys, in both modes: every collective and transfer, a
generation that ends, what is forged, replayed or played elsewhere, and tables that lie. So what
the stories of real daemons compare with has been tried before."""

import collections
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from peer import security, sums, table, wire  # noqa: E402
from peer.net import Inside, require  # noqa: E402
from peer.ops import Call  # noqa: E402
from peer.peer import Peer  # noqa: E402
from peer.sealing import Keys, Refused  # noqa: E402

CLUSTER, NEXT, JOB = (bytes((i * 7 + first) % 256 for i in range(32)) for first in (1, 2, 3))
CALLS = [Call(wire.ALL_REDUCE, "fp32", 1), Call(wire.ALL_REDUCE, "fp32", 5003),
         Call(wire.ALL_REDUCE, "int8", 1023, "max"), Call(wire.REDUCE, "bf16", 700, root=1),
         Call(wire.BROADCAST, "fp32", 700, root=0), Call(wire.ALL_GATHER, "fp64", 300),
         Call(wire.REDUCE_SCATTER, "fp32", 300), Call(wire.BARRIER)]


class Scene:
    """A group of peers, each with its wants."""

    def __init__(self, wants, files=None, jobs=None, **settings):
        self.network = Inside()
        self.peers = []
        for rank, mode in enumerate(wants):
            keys = mode and Keys(files[rank] if files else [CLUSTER], mode, rank,
                                 job=jobs and jobs[rank])
            peer = Peer(self.network, f"10.78.0.{10 + rank}", rank, keys,
                        **{"lanes": 1, "features": 0x02008020, **settings})
            peer.drops = collections.Counter()
            self.peers.append(peer)
        self.entries = [peer.entry for peer in self.peers]
        self.posted = 0

    def form(self, epoch=1):
        self.groups = [peer.join(77, epoch, self.entries, rank)
                       for rank, peer in enumerate(self.peers)]
        self.until(lambda: all(lane.formed for group in self.groups for lane in group.lanes))
        return self

    def until(self, done):
        self.network.run_until(done, "what was waited for", 30)

    def check(self, call):
        self.posted += 1
        nranks = len(self.groups)
        count = call.count * (nranks if call.collective == wire.REDUCE_SCATTER else 1)
        inputs = [None if call.collective == wire.BARRIER or (
            call.collective == wire.BROADCAST and call.root != rank)
            else (np.arange(count) * 7 % 113 + rank + self.posted).astype(
                sums.KINDS[call.datatype]) for rank in range(nranks)]
        ops = [group.post(call, values) for group, values in zip(self.groups, inputs)]
        self.until(lambda: all(group.is_done(op) for group, op in zip(self.groups, ops)))
        for want, op in zip(sums.of_call(call, inputs), ops):
            require(want is None or want.tobytes() == op.output.tobytes(), f"{vars(call)}")

    def leave(self):
        for group in self.groups:
            group.leave()
        self.until(lambda: all(group.has_left() for group in self.groups))

    def give(self, packet, lane=0):
        """From rank 0 to rank 1."""
        self.network.send("10.78.0.10", "10.78.0.11", 18515, 18515 + lane, bytes(packet))

    def receipt(self, link, number):
        """Of nothing: it changes nothing and is not answered."""
        common = {"lane": 0, "tag": self.groups[0].tag, "number": number, "from_rank": 0,
                  "token": link.token_out}
        return link.sealed(wire.encode(wire.RECEIPT, common, {}))

    def dropped(self, rank, send):
        """@return the reason for which this rank dropped what send() sent."""
        self.network.drain()
        before = collections.Counter(self.peers[rank].drops)
        send()
        self.network.drain()
        rose = self.peers[rank].drops - before
        require(sum(rose.values()) <= 1, f"one packet, not {rose}")
        return next(iter(rose), None)


def collectives():
    for mode in "authenticate", "encrypt":
        for nranks, settings in ((2, {}), (3, {}), (3, {"direct_kib": 64, "two_step_kib": 16})):
            scene = Scene([mode] + ["off"] * (nranks - 1), **settings).form()
            require(scene.groups[0].payload_bytes == 1344, "the payload of sealed packets")
            for call in CALLS:
                scene.check(call)
            sent = bytes(range(256)) * 20
            ends = (scene.groups[0].transfers.send(1, sent),
                    scene.groups[1].transfers.receive(0, len(sent)))
            scene.until(lambda ends=ends: all(end.done for end in ends))
            require(bytes(ends[1].data) == sent, "what was moved")
            scene.leave()
            require(not any(sum(p.drops.values()) for p in scene.peers), "nothing was dropped")
            for group in scene.groups[:1]:
                require(group.keys.mode == security.FLAGS[group.keys.mode] // 2, "the mode")


def jobs_and_rotation():
    """Ranks that have keys in another order, and a job's key."""
    scene = Scene(["encrypt"] * 2, [[NEXT, CLUSTER], [CLUSTER, NEXT]], [JOB, JOB]).form()
    require(scene.groups[1].keys.file.id == security.FileKeys(NEXT).id, "the first of rank 0's")
    scene.check(CALLS[1])
    scene.groups[0].abort("client abort", detail="enough")
    scene.until(lambda: scene.groups[1].reason)
    require(scene.groups[1].reason["detail"] == b"enough", "an abort that is sealed")


def generations():
    """One ends at either side, and the next; a number beyond is not tried."""
    scene = Scene(["encrypt"] * 2).form()
    for end in range(1, 4):
        for group in scene.groups:
            link = group.lanes[0].down
            link.next_number = end * security.GENERATION - 3
        scene.check(CALLS[1])
        require(all(group.lanes[0].down.seals.generation == end for group in scene.groups),
                f"generation {end} has begun")
    link = scene.groups[0].lanes[0].down
    for ahead, reason in ((2, "generation"), (9, "generation"), (-2, "generation"),
                          (-1, "replay"), (1, None)):
        number = link.next_number + ahead * security.GENERATION
        got = scene.dropped(1, lambda number=number: scene.give(scene.receipt(link, number)))
        require(got == reason, f"{ahead} generations ahead is {reason}, not {got}")


def attacks():
    for mode in "authenticate", "encrypt":
        scene = Scene([mode] * 2).form()
        link = scene.groups[0].lanes[0].down
        taken, give = [], scene.give
        scene.peers[1].on_packet = lambda packet, *_: taken.append(packet.number)
        kinds = (wire.HELLO, wire.PING, wire.ACK, wire.RECEIPT, wire.ABORT)
        for kind in kinds:
            number, link.next_number = link.next_number, link.next_number + 1
            common = {"lane": 0, "tag": scene.groups[0].tag, "number": number, "from_rank": 0,
                      "token": link.token_out}
            fields = {wire.ABORT: {"code": 4}, wire.HELLO: link.lane.greeting(1)}.get(kind, {})
            packet = wire.encode(kind, common, fields,
                                 bytes(1344 - 72) if kind == wire.HELLO else b"")
            sealed = link.sealed(packet)
            # All of the header, some of a long payload, all of the tag.
            for at in [*range(80), *range(80, len(sealed) - 16, 97), *range(-16, 0)]:
                at = at % len(sealed)
                wrong = bytearray(sealed)
                wrong[at] ^= 0x10
                expected = ("version" if at == 0 else "unknown_group" if 4 <= at < 8 else
                            "foreign" if 46 <= at < 48 else "header_crc" if 48 <= at < 52 else
                            "token" if 56 <= at < 64 else "tag")
                if at == 1:
                    expected = "foreign" if kind == wire.HELLO else "type"
                if 8 <= at < 13:
                    expected = "tag" if kind in (wire.HELLO, wire.ABORT) else "generation"
                got = scene.dropped(1, lambda wrong=wrong, at=at: give(
                    wrong if 48 <= at < 52 else wire.with_header_crc(wrong)))
                require(got == expected or (8 <= at < 16 and got in ("duplicate", "tag")),
                        f"type {kind}, byte {at}: {expected}, not {got}")
            for flags in 0, security.FLAGS[3 - scene.groups[0].keys.mode], 6:
                wrong = bytearray(sealed)
                wrong[2] = flags
                got = scene.dropped(1, lambda wrong=wrong: give(wire.with_header_crc(wrong)))
                require(got == "unsealed", f"flags {flags}: {got}")
            require(scene.dropped(1, lambda packet=packet: give(packet)) == "unsealed", "unsealed")
            require(scene.dropped(1, lambda sealed=sealed: give(sealed[:79])) == "short", "short")
            require(number not in taken, f"type {kind}: nothing was taken so far")
            if kind != wire.ABORT:
                give(sealed)
                scene.until(lambda number=number: number in taken)
                require(scene.dropped(1, lambda sealed=sealed: give(sealed)) == "duplicate",
                        "a replay")
        require(scene.groups[1].reason is None, "the group goes on")
        # The window's end, by numbers that the link has not come to.
        first = link.next_number + 10
        late = [scene.receipt(link, first + i) for i in range(2)]
        for ahead, i, reason in ((8191, 0, None), (8193, 1, "replay")):
            scene.give(scene.receipt(link, first + ahead))
            got = scene.dropped(1, lambda i=i: give(late[i]))
            require(got == reason, f"a number {ahead - i} behind the newest: {reason}, not {got}")


def elsewhere():
    """A packet of lane 0 at lane 1, and of one epoch in another: as it is, and with the token that
    is right there."""
    scene = Scene(["encrypt"] * 2, lanes=2).form()
    links = [scene.groups[0].lanes[lane].down for lane in range(2)]
    packet = scene.receipt(links[0], links[0].next_number + 100)

    def is_dropped(what, packet, reason, lane):
        got = scene.dropped(1, lambda: scene.give(wire.with_header_crc(packet), lane))
        require(got == reason, f"{what} is {reason}, not {got}")

    is_dropped("a packet of lane 0 at lane 1", packet, "token", 1)
    packet[56:64] = links[1].token_out.to_bytes(8, "big")
    is_dropped("one with its token", packet, "tag", 1)
    packet[3] = 1
    is_dropped("one that says lane 1", packet, "tag", 1)
    packet = scene.receipt(links[0], links[0].next_number + 100)
    scene.leave()
    for peer, group in zip(scene.peers, scene.groups):
        peer.close(group)
    scene.form(2)
    is_dropped("a packet of the epoch before", packet, None, 0)  # of a group that is over
    packet[4:8] = scene.groups[0].tag.to_bytes(4, "big")
    is_dropped("one under this tag", packet, "token", 0)
    packet[56:64] = scene.groups[0].lanes[0].down.token_out.to_bytes(8, "big")
    is_dropped("one with this token", packet, "tag", 0)


def refused(what, text, scene, entries=None, rank=0):
    try:
        scene.peers[rank].join(78, 1, entries or scene.entries, rank)
    except Refused as why:
        require(text in str(why), f"{what}: {text} in: {why}")
        return
    require(False, f"{what} is refused")


def tables():
    """What the page lets no table say."""
    for rank in range(2):
        refused("a rank without a key", "rank 1 has no key", Scene(["encrypt", None]), rank=rank)
    refused("keys of two clusters", "no key in common", Scene(["encrypt"] * 2, [[CLUSTER], [NEXT]]))
    refused("another key of the job", "key of the job", Scene(["encrypt"] * 2, None, [JOB, NEXT]))
    refused("a job's key without a mode", "a job's key", Scene(["off"] * 2, None, [JOB, JOB]))
    scene = Scene(["encrypt"] * 2)
    for what, at in (("mode", 282), ("user", 285), ("public key", 288), ("address", 43),
                     ("incarnation", 8), ("payload", 376)):
        entry = bytearray(scene.entries[1])
        entry[at] ^= 2
        refused(what, "entry of rank 1 does not fit", scene,
                [scene.entries[0], table.with_checksum(entry)])
        entry = bytearray(scene.entries[0])
        entry[at] ^= 2
        refused(f"own {what}", "not what this daemon made", scene,
                [table.with_checksum(entry), scene.entries[1]])
    scene = Scene(["off"] * 2)
    entry = bytearray(scene.entries[1])
    entry[43] ^= 2
    refused("an address in a group whose mode is off", "entry of rank 1 does not fit", scene,
            [scene.entries[0], table.with_checksum(entry)])
    scene = Scene(["encrypt"] * 2)
    other = Keys([CLUSTER], "encrypt", 1, user=1000)
    entry = table.with_checksum(other.write(scene.entries[1]))
    refused("made for another user", "user 1000", scene, [scene.entries[0], entry])
    twin = Keys([CLUSTER], "encrypt", 0)
    entry = table.with_checksum(twin.write(scene.entries[1]))
    refused("a public key twice", "the same public_key", scene, [scene.entries[0], entry])


def main():
    for part in (collectives, jobs_and_rotation, generations, attacks, elsewhere, tables):
        part()
        print(part.__name__, flush=True)


if __name__ == "__main__":
    main()
