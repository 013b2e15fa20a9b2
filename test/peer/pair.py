# SPDX-License-Identifier: BSD-3-Clause
"""What goes between two ranks off the ring: contributions, receipts and inquiries of one lane. A
rank gets a chunk of an op once at most from another rank, so its number alone names it."""

from . import wire
from .link import MS
from .net import require

EARLY_PLACES = 2
PTO_NS, PTO_MAX_NS, INQUIRY_NS = 20 * MS, 200 * MS, 50 * MS


class Pair:
    """What this rank and another one know of each other's direct ops on a lane."""

    def __init__(self, lane, rank):
        self.lane, self.rank, self.group = lane, rank, lane.group
        self.entered = self.received_there = 0  # as the other rank says
        self.chunks_there = 0
        self.sent = {}    # op_seq -> chunks sent and not acknowledged
        self.to_send = []  # (op_seq, chunk)
        self.missing = {}  # op_seq -> chunks that are to come
        self.early = {}    # (op_seq, chunk) -> packet
        self.owes_receipt = False
        self.echo, self.echo_ns = 0, 0
        self.activity_ns = self.inquiry_ns = 0
        self.pto_count = 0

    def begin(self, op_seq):
        op = self.group.ops[op_seq]
        if not hasattr(op, "between"):
            return
        lanes, mine = len(self.group.lanes), self.lane.number
        here = [[c for c in op.between(*ends) if op.lane_of(c, lanes) == mine]
                for ends in ((self.group.rank, self.rank), (self.rank, self.group.rank))]
        self.to_send += [(op_seq, chunk) for chunk in here[0]]
        if here[1]:
            self.missing[op_seq] = set(here[1])
            self.owes_receipt = self.owes_receipt or not here[0] or len(here[1]) > 2
        for key in [key for key in self.early if key[0] == op_seq]:
            self._apply(self.early.pop(key))

    def received(self):
        """Up to this op everything has come from there."""
        return min(self.missing, default=self.group.posted + 1) - 1

    def _chunk_bits(self):
        op_seq = self.received() + 1
        op, bits = self.group.ops.get(op_seq), 0
        if op_seq in self.missing:
            lanes = len(self.group.lanes)
            for chunk in op.between(self.rank, self.group.rank):
                if (op.lane_of(chunk, lanes) == self.lane.number and
                        chunk not in self.missing[op_seq]):
                    bits |= 1 << op.bit(self.rank, chunk, lanes)
        return bits

    def say(self, kind):
        """A receipt or an inquiry."""
        now = self.group.now
        delay = (now - self.echo_ns) // 1000 if self.echo_ns else 0
        self.owes_receipt = False
        self.lane.links[self.rank].send(kind, {
            "entered": self.group.posted, "received": self.received(),
            "chunks": self._chunk_bits(), "delay_us": min(delay, 0xFFFF), "echo": self.echo})

    # --- what comes -------------------------------------------------------------------------------

    def take(self, packet):
        link = self.lane.links[self.rank]
        if packet.type == wire.CONTRIBUTION:
            require(packet.payload_crc == wire.crc32c(packet.payload), "a contribution's CRC")
            require(packet.since == 0, "no since to a rank with members")
            self.entered = max(self.entered, packet.op_seq)
            if packet.received_below:
                self._heard(packet.op_seq - packet.received_below + 1, None, packet.op_seq)
            self._take_chunk(packet)
        else:
            self.entered = max(self.entered, packet.entered)
            self._heard(packet.received, packet.chunks, packet.entered)
            require(packet.echo < link.next_number, f"an echo of a number sent: {packet.echo}")
        if packet.type != wire.RECEIPT:
            self.echo, self.echo_ns = packet.number & 0xFFFFFFFF, self.group.now
            self.owes_receipt = True

    def _heard(self, received, chunks, entered):
        """What has come there."""
        before = sum(map(len, self.sent.values()))
        self.received_there = max(self.received_there, received)
        for op_seq in [seq for seq in self.sent if seq <= received]:
            del self.sent[op_seq]
        op_seq, lanes = received + 1, len(self.group.lanes)
        if chunks is not None and op_seq <= entered and op_seq in self.group.ops:
            op = self.group.ops[op_seq]
            if hasattr(op, "between"):
                bits = {op.bit(self.group.rank, c, lanes): c
                        for c in op.between(self.group.rank, self.rank)
                        if op.lane_of(c, lanes) == self.lane.number}
                waits = {chunk for seq, chunk in self.to_send if seq == op_seq}
                for bit in range(64):
                    if chunks >> bit & 1:
                        require(bit in bits and bits[bit] not in waits,
                                f"op {op_seq}: bit {bit} of a receipt is of a chunk that was sent")
                        self.sent.get(op_seq, set()).discard(bits[bit])
        self.sent = {seq: left for seq, left in self.sent.items() if left}
        if sum(map(len, self.sent.values())) < before:
            self.pto_count, self.activity_ns = 0, self.group.now

    def _take_chunk(self, packet):
        key = (packet.op_seq, packet.chunk)
        if packet.op_seq > self.group.posted:
            require(key in self.early or len(self.early) < EARLY_PLACES,
                    f"at most {EARLY_PLACES} early contributions")
            self.early[key] = packet
        else:
            self._apply(packet)

    def _apply(self, packet):
        op = self.group.ops[packet.op_seq]
        if not op.call.is_of(packet):
            self.group.mismatch(packet)
            return
        chunk = packet.chunk
        if chunk not in self.missing.get(packet.op_seq, ()):
            require(chunk in op.between(self.rank, self.group.rank), "a chunk that can come")
            self.lane.counts["duplicates"] += 1
            return
        require(len(packet.payload) == op.length(chunk, self.rank) and
                packet.step == op.step(self.rank, self.group.rank),
                f"op {packet.op_seq} chunk {chunk}: length {len(packet.payload)}, step "
                f"{packet.step}")
        self.missing[packet.op_seq].remove(chunk)
        if not self.missing[packet.op_seq]:
            del self.missing[packet.op_seq]
        op.take(self.rank, chunk, packet.payload)

    # --- what goes --------------------------------------------------------------------------------

    def unacknowledged(self):
        return bool(self.to_send or self.sent)

    def _contribute(self, op_seq, chunk):
        op, received = self.group.ops[op_seq], self.received()
        below = op_seq - received + 1
        fields = {**op.call.fields(), "op_seq": op_seq, "chunk": chunk,
                  "received_below": below if received and 1 <= below <= 0xFFFF else 0,
                  "step": op.step(self.group.rank, self.rank)}
        self.owes_receipt = self.owes_receipt and received > op_seq
        self.activity_ns = self.group.now
        self.lane.links[self.rank].send(wire.CONTRIBUTION, fields, op.payload(self.rank, chunk))

    def tick(self, now):
        early = sum(len(left) for seq, left in self.sent.items() if seq > self.entered)
        for key in list(self.to_send):
            op_seq, chunk = key
            if op_seq > self.entered:
                if early >= EARLY_PLACES:
                    break
                early += 1
            if self.group.ops[op_seq].payload(self.rank, chunk) is None:
                continue
            self.to_send.remove(key)
            self.sent.setdefault(op_seq, set()).add(chunk)
            self._contribute(op_seq, chunk)
        pto = min(PTO_NS << self.pto_count, PTO_MAX_NS)
        if self.sent and now - self.activity_ns >= pto:
            self.pto_count = min(self.pto_count + 1, 8)
            op_seq = min(self.sent)
            self._contribute(op_seq, min(self.sent[op_seq]))
            self.say(wire.INQUIRY)
        elif self.missing and now - max(self.inquiry_ns, self.activity_ns) >= INQUIRY_NS:
            self.inquiry_ns = now
            self.say(wire.INQUIRY)
        elif self.owes_receipt:
            self.say(wire.RECEIPT)
