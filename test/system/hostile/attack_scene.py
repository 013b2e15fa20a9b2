# SPDX-License-Identifier: BSD-3-Clause
"""What stories of attacks share: a group of two daemons whose packets are sealed, somebody who
holds the cable between them (path.py) and has no key, and what the daemons count."""

import threading

import numpy as np

import gradwire
import ring as rings
from crc32c import crc32c
from forged import HEADER, TOKEN
from path import (FROM_RANK, NUMBER, PAYLOAD_CRC, flipped, framed, number_of, packet_of, put,
                  with_crc)
from reference import reference

(HELLO, HELLO_ACK, DATA, PING, ACK, ABORT, BYE, BYE_ACK, CHECK, CONTRIBUTION, RECEIPT, INQUIRY,
 PIECE, OFFER, PULL, TILE_PIECE, TILE_CALL, TILE_PULL) = KINDS = range(1, 19)
BY_HELLO_KEY = (HELLO, HELLO_ACK, ABORT)
BODY = {HELLO: 1344, HELLO_ACK: 1344, DATA: 1344, ACK: 32, ABORT: 184, BYE: 24, BYE_ACK: 24,
        CHECK: 24, CONTRIBUTION: 1344, PIECE: 1344, TILE_PIECE: 1344}
TAG = 16
FLAGS = {"off": 0, "authenticate": 2, "encrypt": 4}
GENERATION = 1 << 22
GROUP_ID = 0xA77AC << 40
BATCH = 16
MARKERS = ("token", "unknown_group")


def require(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def crc_of(body):
    return (crc32c(bytes(body)) if body else 0).to_bytes(4, "big")


class Scene:
    """A group at the two daemons; epoch: above those that its id had; tiles: its larger ops go by
    them."""

    def __init__(self, path, sockets, mode, epoch, tiles):
        self.path, self.sockets, self.mode, self.flag = path, sockets, mode, FLAGS[mode]
        self.generator = np.random.default_rng(39)
        self.tried, self.sums, self.tiles = 0, 0, tiles
        path.seen = [[], []]
        self.epoch, self.ring = epoch, None

    def form(self):
        rings.EPOCH = self.epoch
        rings.new_group_id = lambda: GROUP_ID | self.flag
        self.ring = rings.Ring(self.sockets)
        return self

    def sum(self, count=20_011, in_place=True):
        """One op with inputs of its own, every bit of which has to be right."""
        self.sums += 1
        inputs = self.ring.make_inputs(self.generator, count, "fp32")
        rings.check(self.ring.all_reduce(inputs, "fp32", "sum", in_place),
                    reference.all_reduce(inputs, "fp32", "sum"), f"sum {self.sums}")

    def move(self):
        """A transfer."""
        sent = np.arange(20_000, dtype="u4").astype("u1")
        got = np.zeros_like(sent)
        one, other = self.ring.groups[0][0], self.ring.groups[1][0]
        works = other.recv(got, 0), one.send(sent, 1)
        for work in works:
            work.wait(60)
        require((got == sent).all(), "a transfer")

    def drops(self, daemon):
        total = {}
        for lane in gradwire.daemon_status(self.sockets[daemon])["lanes"]:
            for counters in lane["counters"]["drops"], lane["transport"]["drops"]:
                for name, count in counters.items():
                    total[name] = total.get(name, 0) + count
        return total

    # --- what the attacker makes ------------------------------------------------------------------

    def sample(self, direction):
        """A frame of the group's that went that way."""
        return self.path.newest(direction, PING) or self.path.newest(direction)

    def fresh(self, direction):
        """A number that was not sent, a little ahead of those that were."""
        self.tried += 1
        with self.path.changed:
            newest = max(number_of(packet_of(f)) for f in self.path.seen[direction][-64:])
        return (newest + 1000 + self.tried % 1000).to_bytes(8, "big")

    def forged(self, direction, kind, size=None, flags=None, tag=TAG):
        """With all that whoever reads the header knows."""
        seen = packet_of(self.sample(direction))
        body = self.generator.bytes(BODY.get(kind, 0) if size is None else size)
        header = bytearray(seen[:HEADER])
        header[1], header[2] = kind, self.flag if flags is None else flags
        header[NUMBER:NUMBER + 8] = self.fresh(direction)
        header[16:FROM_RANK] = bytes(FROM_RANK - 16)
        header[PAYLOAD_CRC:TOKEN] = crc_of(body)
        return with_crc(bytes(header) + body + self.generator.bytes(tag))

    # --- what becomes of it -----------------------------------------------------------------------

    def settle(self, direction, before=None):
        """Until all that was sent that way is looked at and counted: two packets were that came
        after it, one of an unknown group and one of another token, which lanes and groups count.
        @param before what was counted before it."""
        frame = self.sample(direction)
        packet = packet_of(frame)
        before = before or self.drops(1 - direction)
        for marker in flipped(packet, TOKEN), put(packet, 4, b"mark"):
            self.path.send(direction, framed(frame, marker))

        def counted():
            now = self.drops(1 - direction)
            return all(now[name] > before[name] for name in MARKERS)
        self.path.until(counted, "what came is looked at")

    def expect(self, what, reason, direction, packets, sample=None, also=()):
        """All of these packets are dropped for this reason, or one of `also`, and nothing else is.
        While the group forms daemons try how long frames may be, and count those as foreign."""
        packets, noise = list(packets), ("foreign",) if self.ring is None else ()
        sample = sample or self.sample(direction)
        for first in range(0, len(packets), BATCH):
            batch = packets[first:first + BATCH]
            before = self.drops(1 - direction)
            for packet in batch:
                self.path.send(direction, framed(sample, packet))
            wanted = dict(before)
            if reason in MARKERS:
                wanted[reason] += len(batch)
            self.settle(direction, wanted)
            after = self.drops(1 - direction)
            rose = {name: after[name] - before[name] - (name in MARKERS) for name in after}
            rose = {name: count for name, count in rose.items() if count and name not in noise}
            enough = sum(rose.pop(name, 0) for name in (reason, *also))
            # A real packet that comes twice is one, too.
            more = rose.pop("duplicate", 0)
            fine = enough == len(batch) or (reason == "duplicate" and enough > len(batch))
            require(fine and not rose, f"{what}: {len(batch)} packets are {reason}, not {enough}, "
                    f"and {more} duplicate, and {rose}")

    def both(self, what, reason, make):
        """make(direction): packets that go that way."""
        for direction in range(2):
            self.expect(what, reason, direction, make(direction))

    def goes_on(self, what):
        self.sum(1003)
        print(what, flush=True)

    def leave(self):
        """In order."""
        threads = [threading.Thread(target=members[0].leave) for members in self.ring.groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.ring.__exit__()

    def error_of(self, rank):
        """@return of what the rank's client was told that its group has ended; None: it has not."""
        try:
            self.ring.groups[rank][0].check()
            return None
        except gradwire.GradwireError as error:
            return str(error)
