# SPDX-License-Identifier: BSD-3-Clause
"""A rank of a group: what lanes have in common, ops as they are posted, aborts and byes."""

import time

from . import table, wire
from .direct import DirectOp, GatheredOp, shape_of
from .lane import HELLO_NS, Lane
from .link import MS
from .net import require
from .ops import Exchange, RingOp
from .pair import Pair
from .sealing import GroupKeys
from .transfers import Transfers

OFF_RING = (wire.CONTRIBUTION, wire.RECEIPT, wire.INQUIRY)
MOVES = (wire.PIECE, wire.OFFER, wire.PULL)
GREETINGS = (wire.HELLO, wire.HELLO_ACK, wire.BYE, wire.BYE_ACK)
LEAVE_NS = 2000 * MS
ABORT_SPACES_NS = [8 * MS, 16 * MS, 32 * MS, 50 * MS]


class SilentOp:
    """An op of no elements, or a barrier by the ring: acknowledgements alone end it."""

    output = None
    done = False

    def __init__(self, call):
        self.call = call


class Group:
    """@param entries table.Entry of each rank; node: see peer.Peer; lies: fields of hellos that
    are not so; alone: it is for transfers alone."""

    def __init__(self, node, group_id, epoch, entries, rank, lies, alone=False):
        self.node, self.group_id, self.epoch = node, group_id, epoch
        self.entries, self.rank, self.nranks = entries, rank, len(entries)
        self.tag = table.group_tag(group_id, epoch)
        self.alone = alone
        self.digest = table.table_digest(group_id, epoch, entries, alone)
        self.payload_bytes = table.payload_bytes(entries)
        self.eager_chunks = entries[0].eager_chunks
        self.data_has_crc = entries[0].data_has_crc
        self.keys = GroupKeys.of(self)
        self.now = time.monotonic_ns()
        self.posted = 0
        self.calls, self.ops, self.digests = {}, {}, {0: 0}
        self.lanes = [None] * min(entry.lanes for entry in entries)
        for number in range(len(self.lanes)):
            self.lanes[number] = Lane(self, number)
        self.pairs = {(lane.number, rank): Pair(lane, rank)
                      for lane in self.lanes for rank in lane.links}
        self.transfers = Transfers(self)
        self.reason = None        # the abort's packet, or its fields if it began here
        self.aborts_sent, self.abort_ns = 0, 0
        self.abort_known = set()  # (lane, rank) that know of it
        self.left = set()         # ranks that said bye
        self.leaving, self.bye_ns, self.bye_answered = False, 0, set()
        self.first_bye_ns = None
        self.expects_mismatch = False
        self.lies = lies
        self.lose_in = self.lose_out = 0  # every so many-th packet is lost; 0: none
        self.came = self.went = 0

    def token(self, lane, sender, receiver):
        return table.token(self.group_id, self.epoch, lane, self.entries, sender, receiver)

    def transmit(self, rank, lane, packet):
        self.went += 1
        if not (self.lose_out and self.went % self.lose_out == 0):
            base = self.entries[self.rank].base_port
            self.node.transmit(self.entries[rank].address, base + lane,
                               self.entries[rank].base_port + lane, packet)

    # --- ops --------------------------------------------------------------------------------------

    def post(self, call, values=None):
        """@param values this rank's input, a numpy array, or None. @return the op: done, output."""
        self.posted += 1
        seq = self.posted
        self.calls[seq] = call
        self.digests[seq] = table.call_digest(self.digests[seq - 1], seq, call.called())
        op = self.make_op(call, values)
        op.seq = seq
        self.ops[seq] = op
        for lane in self.lanes:
            lane.begin(seq)
        for pair in self.pairs.values():
            pair.begin(seq)
        return op

    def make_op(self, call, values):
        exchange = self.nranks == 2 and call.count * call.width <= self.entries[0].exchange_bytes
        if call.collective == wire.ALL_REDUCE and exchange and call.count:
            return Exchange(call, values, self.rank, self.payload_bytes)
        shape = shape_of(self, call)
        if shape == "gathered":
            return GatheredOp(self, call, values)
        if shape is not None:
            return DirectOp(self, call, values, shape)
        if call.count == 0:
            return SilentOp(call)
        return RingOp(call, values, self.rank, self.nranks, self.payload_bytes)

    def silent_ops(self):
        return [op for op in self.ops.values() if isinstance(op, SilentOp)]

    def is_done(self, op):
        """Whether the op's output is whole."""
        if isinstance(op, SilentOp):
            op.done = op.done or all(
                (lane.same_up_to >= op.seq or lane.down.rank in self.left)
                and (op.call.collective != wire.BARRIER or lane.by_all() >= op.seq)
                for lane in self.lanes)
            return op.done
        return not op.expected if hasattr(op, "expected") else op.is_complete()

    def is_idle(self):
        """Whether nothing that was sent is still to be acknowledged."""
        return (all(self.is_done(op) for op in self.ops.values())
                and not any(lane.queue or lane.down.waiting for lane in self.lanes)
                and not any(pair.unacknowledged() for pair in self.pairs.values())
                and self.transfers.is_idle())

    # --- what comes -------------------------------------------------------------------------------

    def known(self, packet, address, lane):
        """The checks of a packet's sender and token, and of its tag if the group has keys.
        @param lane that at whose port it came. @return what was opened, or None."""
        links = self.lanes[lane].links if lane < len(self.lanes) else {}
        if packet.type in wire.TILES or packet.from_rank not in links or (
                self.entries[packet.from_rank].address != address):
            raise wire.Dropped("foreign")
        link = links[packet.from_rank]
        if sum(flag for flag in wire.SEALED if packet.flags & flag) != (
                self.keys.flag if self.keys else 0):
            raise wire.Dropped("unsealed")
        if self.keys and len(packet.data) < wire.HEADER + self.keys.tag_bytes:
            raise wire.Dropped("short")
        if packet.token != link.token_in:
            raise wire.Dropped("token")
        return link.seals.open(packet) if self.keys else None

    def receive(self, packet):
        """A decoded packet of this group."""
        self.came += 1
        if self.lose_in and self.came % self.lose_in == 0:
            return
        lane = self.lanes[packet.lane]
        link = lane.links[packet.from_rank]
        link.heard_ns = self.now
        if packet.type == wire.ABORT:
            self._take_abort(packet)
        elif self.reason is not None:
            self._answer_with_abort(link)
        elif packet.type in OFF_RING:
            link.take_number(packet)
            self.pairs[packet.lane, packet.from_rank].take(packet)
        elif packet.type in MOVES:
            link.take_number(packet)
            self.transfers.take(packet)
        else:
            self._take_from_neighbor(packet, lane, link)

    def _take_from_neighbor(self, packet, lane, link):
        require(link in (lane.up, lane.down), f"a neighbor's packet, not rank {link.rank}'s")
        require(not self.alone or packet.type in GREETINGS,
                f"no packet of type {packet.type} in a group for transfers alone")
        if packet.type == wire.DATA:
            lane.take_data(packet, link)
            return
        link.take_number(packet)
        if packet.type in (wire.HELLO, wire.HELLO_ACK):
            lane.take_hello(packet, link)
        elif packet.type == wire.ACK:
            lane.take_ack(packet, link)
        elif packet.type == wire.PING and packet.asked:
            lane.asked_by_up = packet.asked
        elif packet.type == wire.BYE:
            self._take_bye(packet, lane, link)
        elif packet.type == wire.BYE_ACK:
            self.bye_answered.add((lane.number, link.rank))

    # --- leaving ----------------------------------------------------------------------------------

    def leave(self):
        """Says bye when nothing is left to do."""
        self.leaving = True

    def has_left(self):
        """Whether all neighbors know, and have said so themselves."""
        wanted = {(lane.number, link.rank) for lane in self.lanes for link in (lane.up, lane.down)}
        # Whoever has left may have closed, and its answer was lost: the leave limit ends it.
        over = self.first_bye_ns and self.now - self.first_bye_ns >= LEAVE_NS
        return {rank for _, rank in wanted} <= self.left and (
            over or wanted <= self.bye_answered)

    def _bye_fields(self, lane):
        return {"completed": self.posted, "digest": self.digests[self.posted],
                "posted_by_all": lane.by_all()}

    def _take_bye(self, packet, lane, link):
        if packet.completed <= self.posted:
            require(packet.digest == self.digests[packet.completed],
                    f"the digest of op {packet.completed} in a bye")
        link.by_all = max(link.by_all, packet.posted_by_all)
        self.left.add(link.rank)
        lane.answered = True
        # It has finished every op and every transfer, whatever of its answers was lost.
        link.waiting.clear()
        self.pairs[lane.number, link.rank].sent.clear()
        self.transfers.settle(lane.number, link.rank)
        link.send(wire.BYE_ACK, self._bye_fields(lane))

    # --- aborts -----------------------------------------------------------------------------------

    def abort(self, name, culprit=None, op_seq=0, detail=""):
        """This rank ends the group. `name` is the page's."""
        if self.reason is None:
            self.reason = {"code": wire.ABORT_CODES[name], "reporter": self.rank,
                           "culprit": self.rank if culprit is None else culprit,
                           "op_seq": op_seq, "detail": detail.encode()[:159]}

    def _take_abort(self, packet):
        if self.reason is None:
            self.reason = {"code": packet.code, "culprit": packet.culprit, "op_seq": packet.op_seq,
                           "reporter": packet.reporter, "duration_ns": packet.duration_ns,
                           "detail": packet.detail.encode()}
        self.abort_known.add((packet.lane, packet.from_rank))

    def mismatch(self, packet):
        """A chunk says another call than the one here: either end may say so first. Where it is
        expected the daemon shall."""
        require(self.expects_mismatch, f"op {packet.op_seq}: the call that was called here")

    def _send_abort(self, link):
        fields = {name: value for name, value in self.reason.items() if name != "detail"}
        link.send(wire.ABORT, fields, self.reason["detail"])

    def _answer_with_abort(self, link):
        if self.now - link.sent_down_ns >= HELLO_NS:
            link.sent_down_ns = self.now
            self._send_abort(link)

    def tick(self, now):
        self.now = now
        if self.reason is not None:
            self._repeat_abort()
            return
        for lane in self.lanes:
            lane.tick(now)
            if lane.formed:
                for rank in lane.links:
                    self.pairs[lane.number, rank].tick(now)
        if all(lane.formed for lane in self.lanes):
            self.transfers.tick(now)
        if self.leaving and self.is_idle() and now - self.bye_ns >= HELLO_NS:
            self.bye_ns = now
            self.first_bye_ns = self.first_bye_ns or now
            for lane in self.lanes:
                for link in {lane.up, lane.down}:
                    if (lane.number, link.rank) not in self.bye_answered:
                        link.send(wire.BYE, self._bye_fields(lane))

    def _repeat_abort(self):
        if self.aborts_sent >= 400 or self.now < self.abort_ns:
            return
        self.abort_ns = self.now + ABORT_SPACES_NS[min(self.aborts_sent, 3)]
        for lane in self.lanes:
            for link in {lane.up, lane.down}:
                if self.aborts_sent < 5 or (lane.number, link.rank) not in self.abort_known:
                    self._send_abort(link)
        self.aborts_sent += 1

