# SPDX-License-Identifier: BSD-3-Clause
"""One end of the pair of links between two ranks on a lane: numbers, acknowledgements and loss
recovery both ways. Times are in nanoseconds."""

from . import wire
from .net import require

MS = 1_000_000
PTO_NS, PTO_MAX_NS = 20 * MS, 200 * MS
PACKET_THRESHOLD = 3


class Ranges:
    """The numbers that were received, as (first, last) in ascending order."""

    def __init__(self):
        self.ranges = []

    def add(self, number):
        """@return whether it is new."""
        for i in range(len(self.ranges) - 1, -1, -1):
            first, last = self.ranges[i]
            if first <= number <= last:
                return False
            if number > last:
                self.ranges.insert(i + 1, (number, number))
                break
        else:
            i = -1
            self.ranges.insert(0, (number, number))
        at = i + 1
        if at + 1 < len(self.ranges) and self.ranges[at + 1][0] == number + 1:
            self.ranges[at:at + 2] = [(number, self.ranges[at + 1][1])]
        if at > 0 and self.ranges[at - 1][1] == number - 1:
            self.ranges[at - 1:at + 1] = [(self.ranges[at - 1][0], self.ranges[at][1])]
        del self.ranges[:-256]
        return True

    def newest(self, count=64):
        """(first, last), the newest first."""
        return self.ranges[:-count - 1:-1]


class Sent:
    """A packet that wants an acknowledgement and has none."""

    def __init__(self, kind, fields, payload, place):
        self.kind, self.fields, self.payload = kind, fields, payload
        self.place = place  # among all that wanted one


class Link:
    """`lane` is the Lane that this is of, `rank` the other end."""

    def __init__(self, lane, rank):
        group = lane.group
        self.lane, self.rank = lane, rank
        self.seals = None
        if group.keys is None:
            self.token_out = group.token(lane.number, group.rank, rank)
            self.token_in = group.token(lane.number, rank, group.rank)
        else:
            self.seals = group.keys.seals(lane.number, rank)
            self.token_out, self.token_in = self.seals.out.token, self.seals.into.token
        self.next_number = 1
        self.waiting = {}  # number -> Sent, in the order of numbers
        self.elicited = 0
        self.received = Ranges()
        self.largest_ns = 0  # when the largest number that wants an acknowledgement came
        self.must_acknowledge = False
        self.pto_count = 0
        self.activity_ns = group.now
        self.sent_down_ns = 0
        self.heard_ns = 0
        # What the other end said last, absolute.
        self.credit = self.posted = self.onwards = self.by_all = 0
        self.chunks_sent = 0     # distinct ones, ever
        self.chunks_received = 0
        self.eager = {}          # op above its posted_op_seq -> chunks sent
        self.asked = 0           # op that the last ping asked for

    def send(self, kind, fields, payload=b"", flags=0, payload_crc=None):
        """Under a new number, which is returned."""
        number, self.next_number = self.next_number, self.next_number + 1
        group = self.lane.group
        common = {"lane": self.lane.number, "tag": group.tag, "number": number,
                  "from_rank": group.rank, "token": self.token_out, "flags": flags}
        if kind in wire.ELICITING:
            self.elicited += 1
            self.waiting[number] = Sent(kind, fields, payload, self.elicited)
            self.activity_ns = self.sent_down_ns = group.now
        group.transmit(self.rank, self.lane.number, self.sealed(
            wire.encode(kind, common, fields, payload, payload_crc)))
        return number

    def sealed(self, packet):
        """As it goes on the wire: with its tag, if the group has keys."""
        return packet if self.seals is None else self.seals.seal(packet)

    def send_chunk(self, fields, payload):
        self.send(wire.DATA, fields, payload,
                  payload_crc=None if self.lane.group.data_has_crc else 0)

    # --- what comes -------------------------------------------------------------------------------

    def take_number(self, packet):
        """@return whether a packet that wants an acknowledgement is new; of others always true."""
        new = self.received.add(packet.number)
        if packet.type not in wire.ELICITING:
            return True
        if packet.number == self.received.newest(1)[0][1]:
            self.largest_ns = self.lane.group.now
        self.must_acknowledge = True
        return new

    def take_ack(self, ack):
        """Limits rise, packets are acknowledged or lost."""
        for first, last in ack.ranges():
            require(last < self.next_number, f"no acknowledgement of number {last}, never sent")
        acknowledged = [n for n in self.waiting
                        if any(first <= n <= last for first, last in ack.ranges())]
        newest = max((self.waiting.pop(number).place for number in acknowledged), default=0)
        if acknowledged:
            self.pto_count = 0
            self.activity_ns = self.lane.group.now
            for number, sent in list(self.waiting.items()):
                if sent.place + PACKET_THRESHOLD <= newest:
                    self._again(number)
        self.take_limits(ack.credit, ack.posted)
        if ack.onwards:
            self.onwards = max(self.onwards, ack.posted - ack.onwards + 1)
        if ack.by_all:
            self.by_all = max(self.by_all, ack.posted - ack.by_all + 1)

    def take_limits(self, credit, posted):
        self.credit, self.posted = max(self.credit, credit), max(self.posted, posted)
        self.eager = {op: n for op, n in self.eager.items() if op > self.posted}

    def _again(self, number):
        sent = self.waiting.pop(number)
        self.lane.counts["sent_again"] += 1
        if sent.kind == wire.DATA:
            self.send_chunk(sent.fields, sent.payload)
        else:
            self.send(sent.kind, sent.fields)

    # --- time -------------------------------------------------------------------------------------

    def probe(self, now, blocked):
        """After a PTO without anything new: the oldest packets again, or a ping."""
        if not (self.waiting or blocked):
            return
        if now - self.activity_ns < min(PTO_NS << self.pto_count, PTO_MAX_NS):
            return
        self.pto_count = min(self.pto_count + 1, 8)
        self.activity_ns = now
        if self.waiting:
            for number in list(self.waiting)[:2]:
                self._again(number)
        else:
            self.ping()

    def ping(self, asked=0):
        self.send(wire.PING, {"asked": asked})

    def may_send(self, op_seq):
        """Whether a new chunk of the op may go: credit, grant and eager allowance."""
        if self.chunks_sent >= self.credit or op_seq > self.posted + 256:
            return False
        return op_seq <= self.posted or (
            sum(self.eager.values()) < self.lane.group.eager_chunks)

    def count_chunk(self, op_seq):
        self.chunks_sent += 1
        if op_seq > self.posted:
            self.eager[op_seq] = self.eager.get(op_seq, 0) + 1
