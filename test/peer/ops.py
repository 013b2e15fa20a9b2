# SPDX-License-Identifier: BSD-3-Clause
"""What is called, and ops whose chunks travel in data packets: by the ring, in halves of it, or as
an exchange. An op knows chunks and values; lanes and links are not its own."""

import numpy as np

from . import sums, wire


class Call:
    """One op as all ranks call it. Counts are in elements, root is a process or None."""

    def __init__(self, collective, datatype="uint8", count=0, redop="sum", root=None, tag=0):
        self.collective, self.datatype, self.count = collective, datatype, count
        self.redop, self.root, self.tag = redop, root, tag
        self.kind = [name for name, _ in wire.DATATYPES].index(datatype)
        self.width = wire.DATATYPES[self.kind][1]

    def fields(self):
        """Of data and contributions."""
        return {"count": self.count, "call_tag": self.tag,
                "collective_datatype": self.collective << 4 | self.kind,
                "redop": wire.REDOPS.index(self.redop),
                "root": 0 if self.root is None else self.root + 1}

    def called(self):
        """The 16 bytes of an acknowledgement."""
        fields = self.fields()
        return (self.count.to_bytes(6, "big") + fields["root"].to_bytes(2, "big")
                + self.tag.to_bytes(4, "big")
                + bytes([fields["collective_datatype"], fields["redop"], 0, 0]))

    def is_of(self, packet):
        """Whether a packet of data or a contribution says the same."""
        return all(getattr(packet, name) == value for name, value in self.fields().items())


class RingOp:
    """An op's chunks at this rank. expected: the (chunk, hop) that are still to come."""

    def __init__(self, call, values, rank, nranks, payload_bytes):
        """@param values this rank's input, an array, or None."""
        self.call, self.values, self.rank, self.nranks = call, values, rank, nranks
        self.per_chunk = payload_bytes // call.width
        self.halves = 2 if call.collective == wire.ALL_REDUCE else 1
        single = call.collective in (wire.REDUCE, wire.BROADCAST)
        self.blocks = 1 if single else nranks
        self.block = call.count
        if call.collective == wire.ALL_REDUCE:
            self.block = sums.segment_elements(call.count, nranks, call.width)
        self.chunks_per_block = -(-self.block // self.per_chunk)
        self.hops = self.halves * (nranks - 1)
        self.reducing_hops = nranks - 1 if call.collective in (
            wire.ALL_REDUCE, wire.REDUCE, wire.REDUCE_SCATTER) else 0
        whole = nranks if call.collective == wire.ALL_GATHER else 1
        self.output = np.zeros(call.count * whole, sums.KINDS[call.datatype])
        self.expected = {(chunk, hop) for chunk in self.chunks() for hop in range(self.hops)
                         if (self.start(chunk) + hop + 1) % nranks == rank}
        self._own_to_output()

    def waits_for_all(self):
        """Whether nothing may start before all ranks have posted it."""
        return self.nranks > 2 and self.call.collective in (wire.REDUCE, wire.REDUCE_SCATTER)

    def start(self, chunk):
        """The rank at which the chunk starts."""
        block, collective = chunk // self.chunks_per_block, self.call.collective
        first = self.call.root if self.blocks == 1 else block
        return (first + (collective in (wire.REDUCE, wire.REDUCE_SCATTER))) % self.nranks

    def chunks(self):
        """All that have an element."""
        return [chunk for chunk in range(self.blocks * self.chunks_per_block)
                if self.place(chunk).start < self.place(chunk).stop]

    def place(self, chunk):
        """The chunk's elements in memory that holds all blocks."""
        block, i = divmod(chunk, self.chunks_per_block)
        end = (block + 1) * self.block
        if self.call.collective == wire.ALL_REDUCE:
            end = min(end, self.call.count)
        first = block * self.block + i * self.per_chunk
        return slice(first, min(first + self.per_chunk, end))

    def own(self, chunk):
        place = self.place(chunk)
        if self.call.collective == wire.ALL_GATHER:
            base = self.rank * self.block
            return self.values[place.start - base:place.stop - base]
        return self.values[place]

    def _own_to_output(self):
        """What this rank gives and stores without a packet."""
        if self.call.collective == wire.ALL_GATHER and self.call.count:
            self.output[self.rank * self.block:(self.rank + 1) * self.block] = self.values
        elif self.call.collective == wire.BROADCAST and self.rank == self.call.root:
            self.output[:] = self.values

    def first(self):
        """The (chunk, hop, bytes) that start here."""
        return [(chunk, 0, self.own(chunk).tobytes()) for chunk in self.chunks()
                if self.start(chunk) == self.rank and self.hops]

    def take(self, chunk, hop, payload):
        """A chunk that is expected. @return the (chunk, hop, bytes) that go on from here."""
        self.expected.remove((chunk, hop))
        place = self.place(chunk)
        values = np.frombuffer(payload, sums.KINDS[self.call.datatype])
        if hop < self.reducing_hops:
            last = hop == self.reducing_hops - 1
            values = sums.fold(self.call.datatype, self.call.redop, self.own(chunk), values,
                               self.nranks if last else 1)
        if hop >= self.reducing_hops - 1:
            base = self.rank * self.block if self.call.collective == wire.REDUCE_SCATTER else 0
            self.output[place.start - base:place.stop - base] = values
        return [(chunk, hop + 1, values.tobytes())] if hop + 1 < self.hops else []

    def length(self, chunk):
        """In bytes."""
        place = self.place(chunk)
        return (place.stop - place.start) * self.call.width


class Exchange(RingOp):
    """A small all-reduce of two ranks: every chunk goes both ways, in one hop."""

    def __init__(self, call, values, rank, payload_bytes):
        super().__init__(call, values, rank, 2, payload_bytes)
        self.blocks, self.block, self.hops, self.reducing_hops = 1, call.count, 1, 1
        self.chunks_per_block = -(-self.block // self.per_chunk)
        self.expected = {(chunk, 0) for chunk in self.chunks()}

    def start(self, chunk):
        return self.rank
