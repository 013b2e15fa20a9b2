# SPDX-License-Identifier: BSD-3-Clause
"""A group's part on one lane: it greets, says what is posted, sends and takes chunks of data. Both
neighbors of a rank are the same one if there are two."""

import collections
import heapq

from . import wire
from .link import MS, Link
from .net import require

HELLO_NS, PING_NS = 20 * MS, 50 * MS
CREDIT = 256  # buffers


class Lane:
    def __init__(self, group, number):
        self.group, self.number = group, number
        self.counts = collections.Counter()
        self.links = {rank: Link(self, rank) for rank in range(group.nranks) if rank != group.rank}
        self.down = self.links[(group.rank + 1) % group.nranks]
        self.up = self.links[(group.rank - 1) % group.nranks]
        self.answered = self.greeted = False
        self.hello_ns = 0
        self.queue = []      # (op_seq, order, chunk, hop, payload): what waits to go down
        self.order = 0
        self.early = collections.defaultdict(list)  # op_seq -> packets of ops not posted yet
        self.applied = set()  # (op_seq, chunk, hop)
        self.held = set()     # ops that start when all ranks have posted them
        self.same_up_to = 0   # the next rank is known to have called the same up to there
        self.said_ahead = {}  # op_seq -> digest that the next rank said of an op not posted here
        self.asked_by_up = 0
        self.words_said = (0, 0, 0)

    @property
    def formed(self):
        return self.answered and self.greeted

    # --- forming ----------------------------------------------------------------------------------

    def greeting(self, to_rank, heard_source=0):
        """The fields of a hello or its answer."""
        group = self.group
        return {"group_id": group.group_id, "epoch": group.epoch, "digest": group.digest,
                "incarnation": group.entries[group.rank].incarnation, "sender": group.rank,
                "payload_bytes": group.payload_bytes, "to_rank": to_rank, "nranks": group.nranks,
                "lanes": len(group.lanes), "credit": self.credit_for(self.links[to_rank]),
                "posted": group.posted, "members": 1, "heard_source": heard_source, **group.lies}

    def hello(self, kind, link, heard_source=0):
        padding = bytes(max(self.group.payload_bytes - wire.BODY[wire.HELLO], 0))
        link.send(kind, self.greeting(link.rank, heard_source), padding)

    def take_hello(self, packet, link):
        group = self.group
        wanted = self.greeting(packet.sender) if not group.lies else vars(packet)
        for name, there in (("group_id", packet.group_id), ("epoch", packet.epoch),
                            ("digest", packet.digest), ("payload_bytes", packet.payload_bytes),
                            ("nranks", packet.nranks), ("lanes", packet.lanes),
                            ("members", packet.members)):
            require(there == wanted[name], f"a hello of {name} {wanted[name]:#x}, not {there:#x}")
        require((packet.features, packet.folding_ranks) == (0, 0), "a hello's zeros")
        require(packet.to_rank == group.rank, "a hello to this rank")
        require(packet.incarnation == group.entries[packet.sender].incarnation, "its incarnation")
        require(len(packet.payload) == max(group.payload_bytes, wire.BODY[wire.HELLO]),
                f"a hello as long as a full packet, not of {len(packet.payload)} bytes")
        if packet.type == wire.HELLO:
            self.greeted = True
            self.hello(wire.HELLO_ACK, link,
                       packet.source if group.entries[group.rank].source_ports else 0)
        else:
            self.answered = True
            link.take_limits(packet.credit, packet.posted)

    # --- what is said -----------------------------------------------------------------------------

    def credit_for(self, link):
        return link.chunks_received + CREDIT

    def onwards(self):
        """The op up to which this rank and all after it have posted the same."""
        if self.group.rank == self.group.nranks - 1:
            return self.group.posted
        return min(self.group.posted, self.down.onwards, self.same_up_to)

    def by_all(self):
        return self.onwards() if self.group.rank == 0 else min(self.down.by_all, self.group.posted)

    def acknowledge(self, link):
        group, posted = self.group, self.group.posted
        asked = min(self.asked_by_up or posted, posted)
        words = [posted - word + 1 if word and posted - word < 0xFFFF else 0
                 for word in (self.onwards(), self.by_all())]
        ranges = link.received.newest()
        fields = {"credit": self.credit_for(link), "posted": posted,
                  "delay_ns": min(group.now - (link.largest_ns or group.now), 0xFFFFFFFF),
                  "range_count": len(ranges), "onwards": words[0], "by_all": words[1]}
        if asked:
            fields |= {"called_seq": asked, "called_digest": group.digests[asked],
                       "called": int.from_bytes(group.calls[asked].called(), "big")}
        link.send(wire.ACK, fields, b"".join(first.to_bytes(8, "big") + last.to_bytes(8, "big")
                                             for first, last in ranges))
        link.must_acknowledge = False
        if link is self.up:
            self.asked_by_up = 0
            self.words_said = (posted, self.onwards(), self.by_all())

    def take_ack(self, packet, link):
        link.take_ack(packet)
        if link is not self.down or not packet.called_seq:
            return
        if packet.called_seq > self.group.posted:
            self.said_ahead[packet.called_seq] = packet.called_digest
        else:
            self.compare(packet.called_seq, packet.called_digest)

    def compare(self, op_seq, digest):
        """What the next rank said of an op that is posted here."""
        if digest == self.group.digests[op_seq]:
            self.same_up_to = max(self.same_up_to, op_seq)
        elif not self.group.expects_mismatch:
            require(False, f"the next rank called the same as this one up to op {op_seq}")

    # --- chunks -----------------------------------------------------------------------------------

    def begin(self, op_seq):
        """An op was posted."""
        if op_seq in self.said_ahead:
            self.compare(op_seq, self.said_ahead.pop(op_seq))
        op = self.group.ops[op_seq]
        if hasattr(op, "expected"):
            if op.waits_for_all():
                self.held.add(op_seq)
            else:
                self.start(op_seq)
        for packet in self.early.pop(op_seq, ()):
            self.apply(packet)

    def start(self, op_seq):
        lanes = len(self.group.lanes)
        for chunk, hop, payload in self.group.ops[op_seq].first():
            if chunk % lanes == self.number:
                self.enqueue(op_seq, chunk, hop, payload)

    def enqueue(self, op_seq, chunk, hop, payload):
        self.order += 1
        heapq.heappush(self.queue, (op_seq, self.order, chunk, hop, payload))

    def take_data(self, packet, link):
        require(link is self.up, f"data from the rank before, not from {packet.from_rank}")
        new = link.take_number(packet)
        key = (packet.op_seq, packet.chunk, packet.hop)
        if not new or key in self.applied:
            self.counts["duplicates"] += 1
            return
        if self.group.data_has_crc:
            require(packet.payload_crc == wire.crc32c(packet.payload), "a chunk's right CRC")
        self.applied.add(key)
        link.chunks_received += 1
        if packet.op_seq > self.group.posted:
            self.early[packet.op_seq].append(packet)
            ahead = sum(map(len, self.early.values()))
            require(ahead <= self.group.eager_chunks, f"{ahead} chunks of ops not posted here")
        else:
            self.apply(packet)

    def apply(self, packet):
        op = self.group.ops[packet.op_seq]
        if not op.call.is_of(packet):
            self.group.mismatch(packet)
            return
        key = (packet.chunk, packet.hop)
        require(key in getattr(op, "expected", ()) and packet.chunk % len(self.group.lanes)
                == self.number and len(packet.payload) == op.length(packet.chunk),
                f"op {packet.op_seq}: chunk {packet.chunk} of hop {packet.hop} on lane "
                f"{self.number} with {len(packet.payload)} bytes")
        for chunk, hop, payload in op.take(*key, packet.payload):
            self.enqueue(packet.op_seq, chunk, hop, payload)

    def waits(self):
        """Whether an op waits for a word of the next rank."""
        return bool(self.held) or any(not op.done for op in self.group.silent_ops())

    def tick(self, now):
        group = self.group
        if not self.answered and now - self.hello_ns >= HELLO_NS:
            self.hello_ns = now
            self.hello(wire.HELLO, self.down)
        if not self.formed or group.alone:
            return
        for op_seq in [seq for seq in self.held if self.by_all() >= seq]:
            self.held.remove(op_seq)
            self.start(op_seq)
        while self.queue and self.down.may_send(self.queue[0][0]):
            op_seq, _, chunk, hop, payload = heapq.heappop(self.queue)
            self.down.count_chunk(op_seq)
            self.down.send_chunk({**group.ops[op_seq].call.fields(), "op_seq": op_seq, "hop": hop,
                                  "chunk": chunk}, payload)
        if (group.posted, self.onwards(), self.by_all()) != self.words_said:
            self.up.must_acknowledge = True
        for link in {self.up, self.down}:
            if link.must_acknowledge and link.rank not in group.left:
                self.acknowledge(link)
        if self.down.rank in group.left:
            return
        self.down.probe(now, blocked=bool(self.queue))
        if now - self.down.sent_down_ns >= PING_NS:
            unknown = self.same_up_to < group.posted <= self.down.posted
            self.down.ping(group.posted if unknown else 0)
