# SPDX-License-Identifier: BSD-3-Clause
"""Direct ops: in one hop, by owners, and gathered. An op says which chunks go to which rank; a
pair.Pair brings them there."""

import numpy as np

from . import sums, wire
from .net import require

CHUNKS_MAX, OWNED_MAX = 64, 32
TWO_STEP_MAX = 8 << 20
PARTS_TO_OWNERS = (wire.ALL_REDUCE, wire.REDUCE, wire.REDUCE_SCATTER)
OWNERS_TO_ALL = (wire.ALL_REDUCE, wire.BROADCAST, wire.ALL_GATHER, wire.BARRIER)


def round_up(value, to):
    return -(-value // to) * to


def steps_of(nranks):
    return (nranks - 1).bit_length()


def is_gathered(group, call, first):
    nranks, size = group.nranks, call.count * call.width
    if call.collective not in (wire.ALL_REDUCE, wire.ALL_GATHER, wire.BARRIER):
        return False
    if nranks <= first.gathered_ranks or size > group.payload_bytes or first.gathered_kib == 0:
        return False
    slot = round_up(size, 8)
    largest = max(min(1 << t, nranks - (1 << t)) for t in range(steps_of(nranks))) * slot
    return (nranks * slot <= first.gathered_kib << 10 and
            largest <= CHUNKS_MAX * group.payload_bytes)


def shape_of(group, call):
    """@return gathered, parts, owners, or None: the op is not direct. Of one member a rank."""
    first, nranks = group.entries[0], group.nranks
    bound = first.direct_kib << 10
    if bound < 64 * nranks or any(entry.folds < nranks for entry in group.entries):
        return None
    if call.count == 0 and call.collective != wire.BARRIER:
        return None
    if is_gathered(group, call, first):
        return "gathered"
    size, two_step = call.count * call.width, min((first.two_step_kib << 10) * nranks, TWO_STEP_MAX)
    if call.collective == wire.ALL_REDUCE:
        if (nranks * round_up(size, 64) <= bound and
                -(-size // group.payload_bytes) <= CHUNKS_MAX):
            return "parts"
        bound = two_step
    if nranks < 3:
        return None
    if call.collective == wire.BARRIER:
        return "owners"
    segment, owned = size, 1
    if call.collective == wire.ALL_REDUCE:
        owners = len(owners_of(group))
        segment = sums.segment_elements(call.count, owners, call.width) * call.width
    else:
        bound = max(bound, two_step)
    fits = round_up(segment, 64) * owned * nranks <= bound
    return "owners" if fits and -(-segment // group.payload_bytes) <= OWNED_MAX else None


def owners_of(group):
    ranks = range(group.nranks)
    return [r for r in ranks if group.entries[r].wants_to_own] or list(ranks)


class DirectOp:
    """In one hop: parts to all ranks ("parts"), or to owners and from them ("owners")."""

    def __init__(self, group, call, values, shape):
        self.call, self.values, self.shape = call, values, shape
        self.rank, self.nranks = group.rank, group.nranks
        self.per_chunk = group.payload_bytes // call.width
        self.segment = call.count
        self.owners = [None]
        if shape == "owners":
            self.owners = list(range(self.nranks))
            if call.collective == wire.ALL_REDUCE:
                self.owners = owners_of(group)
                self.segment = sums.segment_elements(call.count, len(self.owners), call.width)
            elif call.root is not None:
                self.owners = [call.root]
            elif call.collective == wire.BARRIER:
                self.segment = 1
        self.chunks_per_segment = -(-self.segment // self.per_chunk)
        self.count = call.count
        if call.collective in (wire.ALL_GATHER, wire.REDUCE_SCATTER, wire.BARRIER):
            self.count = self.segment * self.nranks
        self.chunks = [c for c in range(len(self.owners) * self.chunks_per_segment)
                       if self.place(c).start < self.place(c).stop]
        kind = sums.KINDS[call.datatype]
        self.parts = {rank: {} for rank in range(self.nranks)}  # rank -> chunk -> values
        self.whole = np.zeros(self.count, kind)
        self.stored = set()
        for chunk in self.chunks:
            self._own(chunk)

    # --- which chunks go where --------------------------------------------------------------------

    def place(self, chunk):
        segment, i = divmod(chunk, self.chunks_per_segment)
        first = segment * self.segment + i * self.per_chunk
        return slice(first, min(first + self.per_chunk, (segment + 1) * self.segment, self.count))

    def owner(self, chunk):
        return self.owners[chunk // self.chunks_per_segment]

    def between(self, sender, receiver):
        """The chunks that go from one rank to another."""
        if self.shape == "parts":
            return self.chunks
        collective = self.call.collective
        return [c for c in self.chunks if
                (self.owner(c) == receiver and collective in PARTS_TO_OWNERS) or
                (self.owner(c) == sender and collective in OWNERS_TO_ALL)]

    def bit(self, sender, chunk, lanes):
        """Of the chunk in `chunks` of a receipt from the receiver to the sender."""
        if self.shape == "parts":
            return chunk // lanes
        owner = self.owner(chunk)
        first = self.owners.index(owner) * self.chunks_per_segment
        return chunk - first + (32 if owner == sender else 0)

    def step(self, rank_from, rank_to):
        return 0

    def lane_of(self, chunk, lanes):
        return chunk % lanes

    def length(self, chunk, sender):
        place = self.place(chunk)
        return (place.stop - place.start) * self.call.width

    # --- values -----------------------------------------------------------------------------------

    def _own(self, chunk):
        """What this rank gives of a chunk."""
        collective, place = self.call.collective, self.place(chunk)
        if collective in PARTS_TO_OWNERS:
            self._add(self.rank, chunk, self.values[place])
        elif self.owner(chunk) == self.rank:
            base = self.rank * self.segment if collective == wire.ALL_GATHER else 0
            values = self.values[place.start - base:place.stop - base] if (
                self.values is not None) else np.zeros(1, "u1")
            self._store(chunk, values)

    def _add(self, rank, chunk, values):
        self.parts[rank][chunk] = values
        mine = self.shape == "parts" or self.owner(chunk) == self.rank
        if mine and all(chunk in parts for parts in self.parts.values()):
            self._store(chunk, self._folded(chunk))

    def _folded(self, chunk):
        call, place = self.call, self.place(chunk)
        parts = [self.parts[rank][chunk] for rank in range(self.nranks)]
        if call.collective != wire.ALL_REDUCE:
            return sums.fold_from(parts, self.owner(chunk) + 1, call.datatype, call.redop)
        length = sums.segment_elements(call.count, self.nranks, call.width)
        folded, at = [], place.start
        while at < place.stop:
            segment = at // length
            end = min((segment + 1) * length, place.stop)
            piece = slice(at - place.start, end - place.start)
            folded.append(sums.fold_from([part[piece] for part in parts], segment, call.datatype,
                                         call.redop))
            at = end
        return np.concatenate(folded)

    def _store(self, chunk, values):
        self.whole[self.place(chunk)] = values
        self.stored.add(chunk)

    def payload(self, receiver, chunk):
        """@return bytes, or None while parts are missing."""
        if self.shape == "parts" or self.owner(chunk) == receiver:
            return self.parts[self.rank][chunk].tobytes()
        return self.whole[self.place(chunk)].tobytes() if chunk in self.stored else None

    def take(self, sender, chunk, payload):
        values = np.frombuffer(payload, sums.KINDS[self.call.datatype])
        if self.shape == "parts" or self.owner(chunk) == self.rank:
            self._add(sender, chunk, values)
        else:
            require(self.call.collective != wire.BARRIER or payload == b"\0", "a barrier's zero")
            self._store(chunk, values)

    def is_complete(self):
        return all(chunk in self.stored for chunk in self.chunks
                   if self.owner(chunk) == self.rank or self.call.collective in OWNERS_TO_ALL)

    @property
    def output(self):
        if self.call.collective == wire.REDUCE_SCATTER:
            return self.whole[self.rank * self.segment:(self.rank + 1) * self.segment]
        return self.whole


class GatheredOp:
    """In steps of powers of two: slots of all ranks come, in rank order from this one on."""

    def __init__(self, group, call, values):
        self.call, self.rank, self.nranks = call, group.rank, group.nranks
        self.payload_bytes = group.payload_bytes
        own = b"" if values is None else values.tobytes()
        self.slot = round_up(len(own), 8)
        self.slots = [own.ljust(self.slot, b"\0")]  # of this rank, the next, ...
        self.came = {t: {} for t in range(steps_of(self.nranks))}

    def _slots_in(self, t):
        return min(1 << t, self.nranks - (1 << t))

    def _message_bytes(self, t):
        return self._slots_in(t) * self.slot or 1

    def _step_between(self, sender, receiver):
        distance = (sender - receiver) % self.nranks
        return next((t for t in self.came if 1 << t == distance), None)

    def between(self, sender, receiver):
        t = self._step_between(sender, receiver)
        return [] if t is None else list(range(-(-self._message_bytes(t) // self.payload_bytes)))

    def bit(self, sender, chunk, lanes):
        return chunk

    def step(self, rank_from, rank_to):
        return self._step_between(rank_from, rank_to) + 1

    def lane_of(self, chunk, lanes):
        return 0

    def length(self, chunk, sender):
        size = self._message_bytes(self._step_between(sender, self.rank))
        return min(size - chunk * self.payload_bytes, self.payload_bytes)

    def payload(self, receiver, chunk):
        t = self._step_between(self.rank, receiver)
        if len(self.slots) < 1 << t:
            return None
        message = b"".join(self.slots[:self._slots_in(t)]) or b"\0"
        return message[chunk * self.payload_bytes:(chunk + 1) * self.payload_bytes]

    def take(self, sender, chunk, payload):
        self.came[self._step_between(sender, self.rank)][chunk] = payload
        while len(self.slots) < self.nranks:
            t = len(self.slots).bit_length() - 1
            sender = (self.rank + (1 << t)) % self.nranks
            if len(self.came[t]) < len(self.between(sender, self.rank)):
                return
            message = b"".join(self.came[t][c] for c in sorted(self.came[t]))
            self.slots += [message[i * self.slot:(i + 1) * self.slot]
                           for i in range(self._slots_in(t))]

    def is_complete(self):
        return len(self.slots) == self.nranks

    @property
    def output(self):
        size = self.call.count * self.call.width
        values = [None] * self.nranks
        for i, slot in enumerate(self.slots):
            values[(self.rank + i) % self.nranks] = np.frombuffer(
                slot[:size], sums.KINDS[self.call.datatype])
        if self.call.collective == wire.ALL_GATHER:
            return np.concatenate(values)
        return sums.all_reduce(values, self.call.datatype, self.call.redop)
