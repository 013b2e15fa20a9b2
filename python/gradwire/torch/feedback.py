# SPDX-License-Identifier: BSD-3-Clause
"""Wire formats of the DDP hook's buckets, with error feedback: what a rank's encoding loses in a
step is added to what it gives in the next. The daemon does both, for the whole rank; member 0 of
the rank has the memory: two arrays of fp32 for each bucket, which take turns, so that a part that
is made twice reads and writes the same both times.

DDP lays out its buckets anew after the first step. A residual belongs to parameters: it is dropped
once one of them comes in another bucket. Training comes first: a bucket whose own memory lacks gets
that of residuals, which are gone from then on (Feedback.give_up)."""
import weakref

import torch

from .._native import GradwireError, Status
from . import wire as formats
from .datatypes import name_of

# Arrays of a bucket begin at borders of so many bytes.
_ALIGNED = 64


class Residuals:
    """Of one bucket."""

    def __init__(self, parameters):
        """``parameters``: whose gradients the bucket has; None: nobody says, so its index tells."""
        self.parameters = None if parameters is None else [weakref.ref(own) for own in parameters]
        self.memory = None
        self.arrays = None
        self.count = None
        self.turn = 0  # which array is read
        self.filled = False  # and whether it has anything
        self.busy = False
        self.given_up = False
        self.ops = 0

    def is_of(self, parameters):
        return len(self.parameters) == len(parameters) and all(
            known() is parameter for known, parameter in zip(self.parameters, parameters)
        )

    def is_dead(self):
        return self.parameters is not None and all(known() is None for known in self.parameters)

    def lay_out(self, client, count, arrays):
        """Has so many arrays of ``count`` afterwards."""
        if self.arrays is not None and count == self.count and arrays == len(self.arrays):
            return
        stride = -(-4 * count // _ALIGNED) * _ALIGNED
        self.arrays = self.count = None
        if self.memory is None or self.memory.nbytes < arrays * stride:
            self.memory = None  # given back, before more is asked for
            self.memory = client.allocate(arrays * stride)
        self.arrays = [self.memory.array("float32", count, at * stride) for at in range(arrays)]
        self.count = count

    def forget(self):
        """Gives the memory back. Returns whether something was kept there for the next op."""
        kept, self.filled = self.filled, False
        self.memory = self.arrays = self.count = None
        return kept


class Turn:
    """One op of a bucket. ``arrays``: what it reads and writes, as Group.all_reduce takes them."""

    arrays = (None, None)

    def __init__(self, residuals=None, tally=None, arrays=(None, None), keeps=False):
        """``keeps``: what is written is for the next op."""
        self.arrays = arrays
        self.samples, self.bound = False, None
        self._residuals = residuals
        self._tally = tally
        self._keeps = keeps

    def let_go(self):
        """The op was not posted, and goes without. Returns the Residuals that it was to use."""
        residuals = self._residuals
        self.end(False)
        return residuals

    def end(self, well):
        """The op has ended, and this is the end of the turn. If the op failed, what it read is read
        again."""
        residuals, self._residuals = self._residuals, None
        if residuals is None:
            return
        after, self.arrays = self.arrays[1], (None, None)
        try:
            if well and self.samples:
                self._tally.measured(torch.from_numpy(after), self.bound)
        except (RuntimeError, MemoryError) as error:  # torch lacks memory for it
            self._tally.fell_back(formats.SAMPLE, str(error))
        finally:
            if not self._keeps:
                residuals.forget()
            elif well:
                residuals.turn = 1 - residuals.turn
                residuals.filled = True
            residuals.busy = False


class Feedback:
    """The formats of one hook. Constructed once; join() for each of its groups."""

    def __init__(self, client, wire, feeds_back):
        self.wire = formats.checked(wire)
        self.tally = formats.Tally()
        self.resets = 0
        self.sample_every = formats.SAMPLE_EVERY
        self._client = client
        self._feeds_back = feeds_back
        self._by_index, self._by_parameter = {}, {}  # Residuals; by the id of each parameter
        self._group = self._why_not = None

    def join(self, group):
        """The hook has this group from now on. Residuals of an earlier one stay."""
        self._group = group
        self._why_not = None
        if self.wire is not None:
            self._why_not = formats.why_not(self._client, group, self.wire)

    def wire_of(self, tensor):
        """The format that a bucket travels in; None: as it is. All processes decide alike."""
        wire = self.wire
        if wire is None or tensor.numel() == 0:
            return None
        why = self._why_not or formats.misfit(wire, name_of(tensor.dtype), "avg")
        if why is not None:
            self.tally.fell_back("format " + wire, why)
            return None
        return wire

    def begin(self, index, tensor, parameters):
        """An op on ``tensor`` is to travel in the format. Returns its Turn, which has to end."""
        group, count = self._group, tensor.numel()
        if group.member != 0:
            return Turn()
        residuals = self._of(index, parameters)
        if residuals.busy:
            raise GradwireError(
                Status.BUSY, "bucket %d was passed to the hook again before its last sum was "
                             "there: wait for the future that the hook returned" % index
            )
        # Another bucket each time, so that the cost is spread.
        samples = (residuals.ops + index) % self.sample_every == 0
        residuals.ops += 1
        if not (self._feeds_back or samples) or not self._prepare(residuals, count):
            return Turn()
        before, after = None, residuals.arrays[-1]
        if self._feeds_back:
            before, after = (residuals.arrays[(residuals.turn + at) % 2] for at in (0, 1))
        if not residuals.filled:
            before = None
        turn = Turn(residuals, self.tally, (before, after), self._feeds_back)
        if samples:
            self._sample(turn, tensor, before)
        residuals.busy = True
        return turn

    def give_up(self, turn=None):
        """Gives the memory of one bucket's residuals back for good, since a bucket's gradients need
        it: of one that no op uses, else that of ``turn``, whose op is to be posted. Returns whether
        there was one."""
        unused = (residuals for residuals in reversed(self._all())
                  if not residuals.busy and residuals.memory is not None)
        residuals = next(unused, None)
        if residuals is None and turn is not None:
            residuals = turn.let_go()
        if residuals is None:
            return False
        residuals.given_up = True
        residuals.forget()
        self.tally.fell_back(self._what(), "the daemon's gradient memory is needed for the "
                                           "gradients")
        return True

    def _all(self):
        return list(dict.fromkeys([*self._by_index.values(), *self._by_parameter.values()]))

    def _of(self, index, parameters):
        """The residuals of a bucket. Those of other buckets that share a parameter with it, or
        whose model is gone, are dropped."""
        if parameters is None:
            return self._by_index.setdefault(index, Residuals(None))
        known = self._by_parameter.get(id(parameters[0])) if parameters else None
        if known is not None and known.is_of(parameters):
            return known
        own = {id(parameter) for parameter in parameters}
        for other in self._all():
            if other.busy or other.parameters is None:
                continue
            if other.is_dead() or not own.isdisjoint(id(known()) for known in other.parameters):
                self.resets += other.forget() and not other.is_dead()
                self._by_parameter = {
                    key: value for key, value in self._by_parameter.items() if value is not other
                }
        residuals = Residuals(parameters)
        self._by_parameter.update(dict.fromkeys(own, residuals))
        return residuals

    def took(self, tensor):
        count, group = tensor.numel(), self._group
        self.tally.took(self.wire, count * tensor.element_size(),
                        formats.encoded_bytes(self.wire, count),
                        group.processes // group.members,  # those that have members
                        2)

    def _what(self):
        return "residuals of %s" % self.wire if self._feeds_back else formats.SAMPLE

    def _sample(self, turn, tensor, before):
        """The op's loss is measured, beside what the encoding of the tensor and the residual may
        lose, which is computed where the tensor is."""
        turn.samples = True
        if self._group.members != 1:  # only the daemon knows what several come to
            return
        try:
            values = tensor.detach().reshape(-1).float()
            if before is not None:
                values = values + torch.from_numpy(before).to(values.device)
            turn.bound = formats.bounds(self.wire, values)
        except (RuntimeError, MemoryError) as error:  # torch lacks memory for it
            turn.samples = False
            self.tally.fell_back(formats.SAMPLE, str(error))

    def _prepare(self, residuals, count):
        """Whether there is memory for residuals. Only this process asks, so nothing raises but what
        also ends its ops."""
        if residuals.given_up:
            return False
        try:
            if self._client.memory_device() is not None:
                self.tally.fell_back(self._what(), "the daemon's gradient memory is on a GPU")
                return False
            if count != residuals.count and residuals.forget():
                self.resets += 1
            residuals.lay_out(self._client, count, 2 if self._feeds_back else 1)
        except GradwireError as error:
            if error.code != Status.RESOURCE_EXHAUSTED:
                raise
            self.tally.fell_back(self._what(), "the daemon has no gradient memory left for them")
            return False
        return True

    def stats(self):
        """``format`` that was asked for, Tally.stats(), and ``residual_resets``: how often a
        bucket's residual was dropped, since it had other parameters than before."""
        return dict(self.tally.stats(), format=self.wire, residual_resets=self.resets)

    def close(self):
        self._by_index.clear()
        self._by_parameter.clear()
