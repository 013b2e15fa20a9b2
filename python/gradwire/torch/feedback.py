# SPDX-License-Identifier: BSD-3-Clause
"""Wire formats of the DDP hook's buckets, with error feedback: what a rank's encoding loses in a
step is added to what it gives in the next. The daemon does both, for the whole rank; member 0 of
the rank has the memory: two arrays of fp32 for each bucket, which take turns, so that a part that
is made twice reads and writes the same both times.

DDP lays out its buckets anew after the first step. A residual belongs to parameters: it is dropped
when a bucket has others than before."""
import weakref

import torch

from .._native import GradwireError, Status
from . import wire as formats
from .datatypes import name_of

# Arrays of a bucket begin at borders of so many bytes.
_ALIGNED = 64


class Residuals:
    """Of one bucket."""

    def __init__(self):
        self.memory = None
        self.arrays = None  # [2]
        self.count = self.parameters = None
        self.turn = 0  # which array is read
        self.filled = False  # and whether it has anything
        self.busy = False
        self.ops = 0

    def lay_out(self, client, count, parameters):
        """Returns whether a residual was dropped."""
        if count == self.count and self._has(parameters):
            return False
        dropped, self.filled = self.filled, False
        self.count = None
        stride = -(-4 * count // _ALIGNED) * _ALIGNED
        self.arrays = None
        if self.memory is None or self.memory.nbytes < 2 * stride:
            self.memory = None  # given back, before more is asked for
            self.memory = client.allocate(2 * stride)
        self.arrays = [self.memory.array("float32", count, at) for at in (0, stride)]
        self.count = count
        self.parameters = None
        if parameters is not None:
            self.parameters = [weakref.ref(parameter) for parameter in parameters]
        return dropped

    def forget(self):
        """Gives the memory back."""
        self.memory = self.arrays = self.count = self.parameters = None
        self.filled = False

    def _has(self, parameters):
        if self.parameters is None or parameters is None:
            return self.parameters is parameters
        return len(self.parameters) == len(parameters) and all(
            known() is parameter for known, parameter in zip(self.parameters, parameters)
        )


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
        self._buckets = {}
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
        residuals = self._buckets.setdefault(index, Residuals())
        if residuals.busy:
            raise GradwireError(
                Status.BUSY, "bucket %d was passed to the hook again before its last sum was "
                             "there: wait for the future that the hook returned" % index
            )
        # Another bucket each time, so that the cost is spread.
        samples = (residuals.ops + index) % self.sample_every == 0
        residuals.ops += 1
        if not (self._feeds_back or samples) or not self._prepare(residuals, count, parameters):
            return Turn()
        before, after = (residuals.arrays[(residuals.turn + at) % 2] for at in (0, 1))
        if not residuals.filled:
            before = None
        turn = Turn(residuals, self.tally, (before, after), self._feeds_back)
        turn.samples = samples
        if samples and group.members == 1:  # only the daemon knows what several come to
            turn.bound = self._bound(tensor, before)
        residuals.busy = True
        return turn

    def took(self, tensor):
        count = tensor.numel()
        self.tally.took(self.wire, count * tensor.element_size(),
                        formats.encoded_bytes(self.wire, count), self._group.nranks, 2)

    def _bound(self, tensor, before):
        """What the encoding of the tensor and the residual may lose, computed where the tensor
        is."""
        values = tensor.detach().reshape(-1).float()
        if before is not None:
            values = values + torch.from_numpy(before).to(values.device)
        return formats.bounds(self.wire, values)

    def _prepare(self, residuals, count, parameters):
        """Whether there is memory for residuals."""
        what = "residuals of %s" % self.wire
        if self._client.memory_device() is not None:
            self.tally.fell_back(what, "the daemon's gradient memory is on a GPU")
            return False
        try:
            if residuals.lay_out(self._client, count, parameters):
                self.resets += 1
        except GradwireError as error:
            if error.code != Status.RESOURCE_EXHAUSTED:
                raise
            self.tally.fell_back(what, "the daemon has no gradient memory left for them")
            return False
        return True

    def stats(self):
        """``format`` that was asked for, Tally.stats(), and ``residual_resets``: how often a
        bucket's residual was dropped, since it had other parameters than before."""
        return dict(self.tally.stats(), format=self.wire, residual_resets=self.resets)

    def close(self):
        self._buckets.clear()
