# SPDX-License-Identifier: BSD-3-Clause
"""Transfers between processes, one at each rank: both ends, on all lanes."""

from . import wire
from .link import MS
from .net import require

SEND_RECV, ALL_TO_ALL, GATHER, SCATTER = range(4)
ASKS, DONE, COMPLETE = 1, 2, 2
AHEAD_CHUNKS, EARLY_PLACES, WINDOW_CHUNKS = 2, 64, 16
PTO_NS, PTO_MAX_NS = 20 * MS, 200 * MS


class End:
    """One transfer at one of its ends. `data` is what is sent, or room for what comes."""

    def __init__(self, sequence, data, tag, call):
        self.sequence, self.data, self.tag, self.call = sequence, data, tag, call
        self.lanes_left = set()

    @property
    def done(self):
        return not self.lanes_left


class LaneEnd:
    """What one lane knows of a pair of processes, at the source or at the destination."""

    def __init__(self):
        self.end = None       # the End under way
        self.heard = 0        # sequence that the other end is known to have posted
        self.first = 0        # chunks below have come, or are known to have
        self.have = set()     # chunks that came
        self.pulled = set()
        self.tries = 0
        self.next_ns = 0
        self.settled = True   # the other end has the next step


class Transfers:
    """Of one rank, whose process has its rank's number."""

    def __init__(self, group):
        self.group = group
        self.sources, self.destinations = {}, {}  # (lane, other rank) -> LaneEnd
        self.counts = {}                          # (is source, other rank) -> posted
        self.early = {}                           # (lane, rank) -> {chunk: packet}
        self.echo = {}                            # (lane, rank) -> number of the newest offer

    def send(self, rank, data, tag=0, call=SEND_RECV):
        """@return an End, which is done when all of it has come there."""
        return self._post(self.sources, True, rank, bytes(data), tag, call)

    def receive(self, rank, size, tag=0, call=SEND_RECV):
        """@param size in bytes. @return an End, whose data is whole when it is done."""
        return self._post(self.destinations, False, rank, bytearray(size), tag, call)

    def _post(self, ends, is_source, rank, data, tag, call):
        sequence = self.counts[is_source, rank] = self.counts.get((is_source, rank), 0) + 1
        end = End(sequence, data, tag, call)
        for lane in range(len(self.group.lanes)):
            here = ends.setdefault((lane, rank), LaneEnd())
            if lane > 0 and not self._chunks(lane, len(data)):
                continue
            require(here.end is None or here.end.done, "one transfer of a pair at a time")
            end.lanes_left.add(lane)
            here.end, here.first, here.tries, here.next_ns = end, 0, 0, 0
            here.have, here.pulled, here.settled = set(), set(), False
            if not is_source:
                for packet in self.early.pop((lane, rank), {}).values():
                    self._take_piece(here, packet)
        return end

    def _chunks(self, lane, size):
        """How many of a transfer the lane has."""
        lanes, chunks = len(self.group.lanes), -(-size // self.group.payload_bytes)
        return len(range(lane, chunks, lanes))

    def is_idle(self):
        return (all(here.end is None or here.end.done for here in self.sources.values())
                and all(here.end is None or (here.end.done and here.settled)
                        for here in self.destinations.values()))

    def settle(self, lane, rank):
        """That rank has left, so it has no transfer left."""
        for ends in self.sources, self.destinations:
            here = ends.get((lane, rank))
            if here is not None:
                here.settled = True
                if here.end is not None:
                    here.end.lanes_left.discard(lane)

    # --- the source -------------------------------------------------------------------------------

    def _told(self, rank, end):
        """What a piece and an offer say."""
        if end is None:
            return {"source": self.group.rank, "destination": rank}
        return {"sequence": end.sequence, "bytes": len(end.data), "call_tag": end.tag,
                "source": self.group.rank, "destination": rank, "call": end.call}

    def _offer(self, lane, rank, bits):
        here = self.sources.get((lane, rank), LaneEnd())
        if here.end is not None and lane not in here.end.lanes_left:
            bits |= DONE
        self.group.lanes[lane].links[rank].send(
            wire.OFFER, {**self._told(rank, here.end), "bits": bits})

    def _piece(self, lane, rank, end, index):
        chunk, size = lane + index * len(self.group.lanes), self.group.payload_bytes
        self.group.lanes[lane].links[rank].send(
            wire.PIECE, {**self._told(rank, end), "chunk": index},
            end.data[chunk * size:(chunk + 1) * size])

    def _take_pull(self, packet):
        rank, lane = packet.from_rank, packet.lane
        here = self.sources.get((lane, rank))
        end = here.end if here else None
        if end is not None and lane in end.lanes_left:
            if packet.sequence > end.sequence or (packet.sequence == end.sequence
                                                  and packet.bits & COMPLETE):
                end.lanes_left.remove(lane)
            elif packet.sequence == end.sequence:
                here.settled = True
                for bit in range(64):
                    if packet.wanted >> bit & 1:
                        require(packet.first + bit < self._chunks(lane, len(end.data)),
                                f"a pull of chunks that there are, not {packet.first + bit}")
                        self._piece(lane, rank, end, packet.first + bit)
            elif packet.echo:
                here.settled = True
        if packet.bits & ASKS:
            self._offer(lane, rank, 0)

    # --- the destination --------------------------------------------------------------------------

    def _pull(self, lane, rank, here, wanted, bits):
        sequence = here.end.sequence if here.end else 0
        self.group.lanes[lane].links[rank].send(wire.PULL, {
            "sequence": sequence, "wanted": sum(1 << index - here.first for index in wanted),
            "first": here.first, "echo": self.echo.get((lane, rank), 0), "source": rank,
            "destination": self.group.rank, "bits": bits})

    def _take_piece(self, here, packet):
        """A piece, or what one that was kept says, of the transfer under way."""
        end, lanes = here.end, len(self.group.lanes)
        if end is None or packet.sequence != end.sequence or packet.lane not in end.lanes_left:
            return
        here.heard = packet.sequence
        if (packet.bytes, packet.call_tag, packet.call) != (len(end.data), end.tag, end.call):
            require(self.group.expects_mismatch, "a transfer with the same bytes, tag and call")
            return
        if packet.type == wire.PIECE:
            index, size = packet.chunk, self.group.payload_bytes
            at = (packet.lane + index * lanes) * size
            require(len(packet.payload) == min(size, len(end.data) - at),
                    f"piece {index} of the length that it has")
            end.data[at:at + len(packet.payload)] = packet.payload
            here.have.add(index)
            here.pulled.discard(index)
            while here.first in here.have:
                here.first += 1
        here.next_ns = 0 if not here.pulled else here.next_ns

    def _take_offer(self, packet):
        """Also of a piece, which offers too."""
        key = (packet.lane, packet.from_rank)
        here = self.destinations.setdefault(key, LaneEnd())
        if packet.type == wire.OFFER:
            self.echo[key] = packet.number & 0xFFFFFFFF
        else:
            require(packet.payload_crc == wire.crc32c(packet.payload), "a piece's CRC")
        posted = here.end.sequence if here.end else 0
        if packet.sequence > posted and packet.sequence <= self.counts.get(
                (False, packet.from_rank), 0) + 1:
            kept = self.early.setdefault(key, {})
            if len(kept) < EARLY_PLACES:
                kept[packet.chunk if packet.type == wire.PIECE else -1] = packet
        elif packet.sequence == posted and posted:
            self._take_piece(here, packet)
        if here.end is not None and here.end.done and (
                packet.sequence > here.end.sequence or packet.bits & DONE):
            here.settled = True
        if packet.type == wire.OFFER and (packet.bits & ASKS or packet.sequence > posted):
            self._answer_offer(*key, here)

    def _answer_offer(self, lane, rank, here):
        end = here.end
        complete = end is not None and lane not in end.lanes_left
        self._pull(lane, rank, here, (), COMPLETE if complete else 0)

    # --- both -------------------------------------------------------------------------------------

    def take(self, packet):
        group = self.group
        there, here = (packet.destination, packet.source) if packet.type == wire.PULL else (
            packet.source, packet.destination)
        require((there, here) == (packet.from_rank, group.rank), "a pair of these two ranks")
        if packet.type == wire.PULL:
            self._take_pull(packet)
        else:
            self._take_offer(packet)

    def tick(self, now):
        for (lane, rank), here in self.sources.items():
            end = here.end
            if end is None or lane not in end.lanes_left or here.settled or now < here.next_ns:
                continue
            chunks = self._chunks(lane, len(end.data))
            if here.tries == 0 and 0 < chunks <= AHEAD_CHUNKS:
                for index in range(chunks):
                    self._piece(lane, rank, end, index)
            else:
                self._offer(lane, rank, ASKS if here.tries else 0)
            self._later(here, now)
        for (lane, rank), here in self.destinations.items():
            self._tick_destination(lane, rank, here, now)

    def _tick_destination(self, lane, rank, here, now):
        end = here.end
        if end is None or here.heard < end.sequence or now < here.next_ns or here.settled:
            return
        chunks = self._chunks(lane, len(end.data))
        if here.first >= chunks:
            end.lanes_left.discard(lane)
            self._pull(lane, rank, here, (), COMPLETE | (ASKS if here.tries else 0))
        else:
            end_of_window = min(chunks, here.first + WINDOW_CHUNKS)
            here.pulled = set(range(here.first, end_of_window)) - here.have
            self._pull(lane, rank, here, here.pulled, 0)
        self._later(here, now)

    @staticmethod
    def _later(here, now):
        here.next_ns = now + min(PTO_NS << min(here.tries, 8), PTO_MAX_NS)
        here.tries += 1
