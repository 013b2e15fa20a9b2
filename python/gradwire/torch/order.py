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
import threading
import time

from .._cuda import cuda


class Span:
    """The addresses that a tensor's elements lie between. Of one that is not contiguous: also how
    far its rows are apart, and how long a row is, so that columns of one matrix are told apart."""

    __slots__ = ("begin", "end", "row", "row_bytes")

    def __init__(self, tensor):
        width = tensor.element_size()
        self.begin = tensor.data_ptr()
        self.end = self.begin
        self.row = self.row_bytes = 0
        if tensor.numel() == 0:
            return
        steps = sorted(((stride * width, size) for stride, size in
                        zip(tensor.stride(), tensor.shape) if size != 1), reverse=True)
        self.end += width + sum(step * (size - 1) for step, size in steps)
        if steps:
            # The rows of rows that follow each other are as far apart as these.
            rows = 1
            while len(steps) > 1 and steps[0][0] == steps[1][0] * steps[1][1]:
                rows *= steps.pop(0)[1]
            self.row, rows = steps[0][0], rows * steps[0][1]
            self.row_bytes = self.end - self.begin - self.row * (rows - 1)

    def meets(self, other):
        if self.begin >= other.end or other.begin >= self.end:
            return False
        row = self.row
        if row != other.row or max(self.row_bytes, other.row_bytes) > row or row == 0:
            return True
        apart = (other.begin - self.begin) % row
        return apart < self.row_bytes or row - apart < other.row_bytes


def _spans(tensors):
    return [Span(tensor) for tensor in tensors if tensor is not None]


def overlap(some, others):
    """Whether one of some spans has memory in common with one of the others."""
    return any(span.meets(other) for span in some for other in others)


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
        for other in channel.queued():
            if other.number >= op.number or other.done or other.keep is None:
                continue
            other_reads, other_writes = _sides(other)
            if overlap(writes, other_reads + other_writes) or overlap(reads, other_writes):
                return True
    return False


def _wait(work):
    """Waits for another call that this one has to come after, and raises what became of it."""
    left = max(work.deadline - time.monotonic(), 0.001) + 1.0
    work.wait(datetime.timedelta(seconds=left))


class Copies:
    """What the backend copies to results when their ops have ended: works that are to do so, and
    copies that its stream has been given, which may still run. Whether they do is not asked, since
    CUDA counts that as unsafe while another thread captures a graph. Any thread."""

    _MOST = 8

    def __init__(self):
        self._works = set()
        self._lock = threading.Lock()
        self._begun = collections.deque()  # (spans, device, the event behind them)
        self._older = {}  # by device: the event behind all that were begun before those

    def expect(self, work):
        self._works.add(work)

    def begun(self, work, event):
        """The work's stream has been given its copies; None: they could not be made."""
        with self._lock:
            if event is not None:
                self._begun.append((_spans(work.tensors), work.gpu.device, event))
                if len(self._begun) > self._MOST:
                    _, device, self._older[device] = self._begun.popleft()
            self._works.discard(work)

    def come_first(self, device, tensors):
        """Before a call that uses the tensors, in the thread that makes it: waits for works that
        will copy to them, and lets the current stream wait for copies that were begun."""
        if not self._works and not self._begun:
            return
        ours = _spans(tensors)
        for work in list(self._works):
            if overlap(ours, _spans(work.tensors)):
                _wait(work)
        with self._lock:
            # All of a device are on one stream.
            last = self._older.get(device)
            for spans, where, event in self._begun:
                if where == device and overlap(ours, spans):
                    last = event
        if last is not None:
            cuda.current_stream(device).wait_event(last)


def after_ops(engine, read, written):
    """Before tensors of a GPU are copied at once, ahead of a call's op: waits for ops whose results
    go to what is read or written, and for those that read what is written."""
    reads, writes = _spans(read), _spans(written)
    for channel in list(engine._channels):
        for op in list(channel.in_flight) + channel.queued():
            # Ops of the very call that copies are not sealed, and know what they do.
            if op.keep is None or op.work.gpu is None or not op.work.sealed:
                continue
            op_reads, op_writes = _sides(op)
            if overlap(reads + writes, op_writes) or overlap(writes, op_reads):
                _wait(op.work)
