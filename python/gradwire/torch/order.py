# SPDX-License-Identifier: BSD-3-Clause
"""The order between calls on a GPU's tensors that use the same memory.

The C interface orders the ops that it has: it refuses one that overlaps another, and the op waits
in its channel. Two things it does not know of:

- ops that wait in channels: an op goes behind earlier ones of other channels that overlap it;
- what the backend copies besides, before a call's op and after it. A call that would get ahead of
  such a copy waits for the other call in the thread that makes it, until that has ended or its
  timeout is over. Only calls of lists and of tensors that are not contiguous have such copies.

If nothing waits and nothing is copied, none of this costs more than a look at empty sets.
"""
import collections
import datetime
import math
import threading
import time

from .._cuda import cuda
from .._native import GradwireError


# How many places are tried before it is left open whether two views have memory in common. Views of
# one tensor, and those of equal pitches, take some dozens.
_MOST_TRIES = 2000


class Span:
    """Where a tensor's elements lie: at `begin`, and from there on by whole numbers of its steps,
    each (bytes, how many), `width` bytes at a time."""

    __slots__ = ("begin", "end", "steps", "width")

    def __init__(self, tensor):
        self.width = tensor.element_size()
        self.begin = self.end = tensor.data_ptr()
        self.steps = ()
        if tensor.numel() == 0:
            return
        steps = sorted((stride * self.width, size) for stride, size in
                       zip(tensor.stride(), tensor.shape) if size != 1 and stride != 0)
        while steps and steps[0][0] == self.width:
            self.width *= steps.pop(0)[1]
        self.steps = tuple(reversed(steps))
        self.end += _extent(self.steps, self.width)

    def meets(self, other):
        """Whether they have a byte in common. None: that would take too long to find out."""
        if self.begin >= other.end or other.begin >= self.end:
            return False
        return _meet(other.begin - self.begin, self.steps, self.width, other.steps, other.width,
                     [_MOST_TRIES])


def _extent(steps, width):
    return width + sum(step * (size - 1) for step, size in steps)


def _meet(apart, steps, width, other_steps, other_width, tries):
    """Span.meets() of two whose begins are so many bytes apart."""
    tries[0] -= 1
    if tries[0] < 0:
        return None
    if apart >= _extent(steps, width) or -apart >= _extent(other_steps, other_width):
        return False
    if not steps and not other_steps:
        return True
    # Counted from the last multiple of what divides all steps, each is at one place only.
    common = math.gcd(*(step for step, _ in steps + other_steps))
    if width <= apart % common <= common - other_width:
        return False
    # Each pair of places in the longest step that can bring them together, by their distance.
    step = max(step for step, _ in steps[:1] + other_steps[:1])
    below = above = 0
    if steps and steps[0][0] == step:
        below, steps = steps[0][1] - 1, steps[1:]
    if other_steps and other_steps[0][0] == step:
        above, other_steps = other_steps[0][1] - 1, other_steps[1:]
    first = max(-below, -((apart + _extent(other_steps, other_width) - 1) // step))
    last = min(above, (_extent(steps, width) - 1 - apart) // step)
    for places in range(first, last + 1):
        found = _meet(apart + places * step, steps, width, other_steps, other_width, tries)
        if found is not False:
            return found
    return False


def _spans(tensors):
    return [Span(tensor) for tensor in tensors if tensor is not None]


def overlap(some, others, if_unsure=True):
    """Whether one of some spans has memory in common with one of the others."""
    for span in some:
        for other in others:
            meet = span.meets(other)
            if meet or meet is None and if_unsure:
                return True
    return False


def _sides(op):
    """What an op reads and writes: kept, since an op that waits is asked for it again and again."""
    keep = op.keep
    if op.spans is None and keep is not None:
        op.spans = _spans(keep[:1]), _spans(keep[1:2])
    return op.spans or ([], [])


def has_to_wait(engine, op):
    """Whether an earlier call's op that uses the same memory is still to be posted."""
    reads, writes = _sides(op)
    for channel in list(engine.queuing):
        for queue in channel.queues:
            for other in _earlier(queue, op.number):
                if other.done or other.keep is None:
                    continue
                other_reads, other_writes = _sides(other)
                if overlap(writes, other_reads + other_writes) or overlap(reads, other_writes):
                    return True
    return False


def _earlier(queue, number):
    """Those of a channel's queue that were called before. It is in the order of the calls, so that
    those of thousands that came later cost nothing."""
    try:
        if queue[0].number >= number:
            return
    except IndexError:
        return
    # At once: other threads change it.
    for op in list(queue):
        if op.number >= number:
            return
        yield op


def _wait(work):
    """Waits for another call that this one has to come after, and raises what became of it."""
    left = max(work.deadline - time.monotonic(), 0.001) + 1.0
    try:
        work.wait(datetime.timedelta(seconds=left))
    except GradwireError as error:
        raise GradwireError(
            error.code,
            "a later call waited for this one, since its memory may overlap: make it on other "
            "memory, or where the earlier one has ended: %s" % error.text,
        ) from error


class Copies:
    """What the backend copies to results when their ops have ended: works that are to do so, and
    copies that its stream has been given, which may still run. Whether they do is not asked, since
    CUDA counts that as unsafe while another thread captures a graph. Any thread."""

    _MOST = 8

    def __init__(self):
        self._works = set()
        self._lock = threading.Lock()
        self._begun = collections.deque()  # (spans, device, the event behind them)
        # By device, of all that were begun before those: the addresses that they are between, and
        # the event behind them.
        self._older = {}

    def expect(self, work):
        self._works.add(work)

    def begun(self, work, event):
        """The work's stream has been given its copies; None: they could not be made."""
        with self._lock:
            if event is not None:
                self._begun.append((_spans(work.tensors), work.gpu.device, event))
                if len(self._begun) > self._MOST:
                    self._drop()
            self._works.discard(work)

    def _drop(self):
        spans, device, event = self._begun.popleft()
        spans = [span for span in spans if span.begin < span.end]
        begins, ends = [span.begin for span in spans], [span.end for span in spans]
        if device in self._older:
            begin, end, _ = self._older[device]
            begins.append(begin)
            ends.append(end)
        if begins:
            self._older[device] = min(begins), max(ends), event

    def come_first(self, device, tensors, transfers):
        """Before a call that uses the tensors, in the thread that makes it: waits for works that
        will copy to them, and lets the current stream wait for copies that were begun.
        ``transfers``: it is a send or a recv. If it is open whether it overlaps another one, it
        does not wait: what ends that one may be what the peer sends after this one."""
        if not self._works and not self._begun:
            return
        ours = _spans(tensors)
        for work in list(self._works):
            if overlap(ours, _spans(work.tensors), not (transfers or work.transfers)):
                _wait(work)
        with self._lock:
            # All of a device are on one stream.
            last = None
            if device in self._older:
                begin, end, event = self._older[device]
                if any(span.begin < end and begin < span.end for span in ours):
                    last = event
            for spans, where, event in self._begun:
                if where == device and overlap(ours, spans):
                    last = event
        if last is not None:
            cuda.current_stream(device).wait_event(last)


def after_ops(engine, read, written, transfers):
    """Before tensors of a GPU are copied at once, ahead of a call's op: waits for ops whose results
    go to what is read or written, and for those that read what is written. ``transfers``: as of
    Copies.come_first()."""
    reads, writes = _spans(read), _spans(written)
    for channel in list(engine._channels):
        for op in list(channel.in_flight) + channel.queued():
            # Ops of the very call that copies are not sealed, and know what they do.
            if op.keep is None or op.work.gpu is None or not op.work.sealed:
                continue
            op_reads, op_writes = _sides(op)
            if_unsure = not (transfers or op.work.transfers)
            if (overlap(reads + writes, op_writes, if_unsure)
                    or overlap(writes, op_reads, if_unsure)):
                _wait(op.work)
