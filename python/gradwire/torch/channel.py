# SPDX-License-Identifier: BSD-3-Clause
"""Ops, and the queues that they are posted through.

A channel is a group of the C interface and queues before it. What cannot be posted now waits in the
channel, and holds back nothing of any other channel: while its group is being formed, while as many
ops as there may be are unfinished, or while its memory belongs to another op. Ops of a channel are
posted in the order of the calls, but sends and recvs of transfers each in an order of their own:
the sends that end a process's recvs may come after thousands of them.
"""
import collections
import ctypes
import itertools
import threading
import time

from .._cuda import cuda, handle_of
from .._native import Status, error_of, lib, milliseconds
from .order import has_to_wait

# The daemon takes 64 unfinished ops of a group (limits.active_ops); commands beyond that would hold
# back those of other groups.
GROUP_OPS = 32
# The queues of a channel that an op goes through. A collective takes the first, a gather both; such
# a transfer is counted as neither.
SENDS, RECVS = 0, 1
BOTH = 2
# Of all ops of the process, in the order of the calls.
_numbers = itertools.count()
_SLICE_S = 1.0
_SLICE_MS = 1000
_MOST_S = 3600.0


class Handle(ctypes.c_void_p):
    """A gw_work, freed with the last who may wait for it."""

    def order(self, stream, timeout_s):
        """It has ended well: what ``stream`` is given next comes after its result's copy."""
        limit_ms = milliseconds(min(timeout_s, _MOST_S))
        status = lib.gw_wait_on_stream(self, limit_ms, handle_of(stream))
        if status != Status.OK:
            raise error_of(status)

    def __del__(self):
        if self.value is not None and lib is not None:
            lib.gw_work_free(self)
            self.value = None


class Limit:
    """How many ops of a kind may be unfinished, of one channel or of several. Beyond it each
    channel may have one, so that no group waits for others."""

    def __init__(self, most):
        self.most = most
        self.used = 0  # under the engine's lock


class Op:
    """One op of the C interface.

    call:   what is posted
    keep:   what has to stay alive until the op has ended
    ways:   the queues of its channel that it goes through
    """

    __slots__ = (
        "work", "channel", "call", "keep", "ways", "kind", "handle", "done", "expired", "watched",
        "counted", "number", "spans", "refusal",
    )

    def __init__(self, work, channel, call, keep, ways):
        self.work = work
        self.channel = channel
        self.call = call
        self.keep = keep
        self.ways = ways
        self.kind = ways[0] if len(ways) == 1 else BOTH
        self.handle = None
        self.done = False
        self.expired = False
        self.watched = False  # by the thread
        self.counted = False  # in limits
        self.number = -1  # among all that were posted or queued
        self.spans = None  # what order.py knows of its memory
        self.refusal = None  # what was said when it could not be posted yet

    def look(self):
        """Returns whether it has ended; then all have been told."""
        if self.handle is None or self.done:
            return self.done
        done = ctypes.c_int()
        status = lib.gw_test(self.handle, ctypes.byref(done))
        if done.value:
            self.channel.engine.ended(self, None if status == Status.OK else error_of(status))
        return bool(done.value)

    def wait(self, until):
        """Waits in this thread, if the op is posted. Returns when it has ended, or at ``until``."""
        engine = self.channel.engine
        while self.handle is not None and not self.done:
            now = time.monotonic()
            left = self.work.deadline - now
            if left <= 0:
                return engine.expire(self)
            if until is not None:
                left = min(left, until - now)
                if left <= 0:
                    return None
            gpu = self.work.gpu
            slice_ms = _SLICE_MS if left > _SLICE_S else int(left * 1000) + 1
            if gpu is None:
                status = lib.gw_wait(self.handle, slice_ms)
            else:
                # What is copied at the end, or whatever this thread's stream is given next, comes
                # after the result's copy to the GPU.
                stream = gpu.side if self.work.finish is not None else cuda.current_stream(
                    gpu.device
                )
                status = lib.gw_wait_on_stream(self.handle, slice_ms, handle_of(stream))
            if status == Status.OK:
                return engine.ended(self, None)
            error = error_of(status)
            if lib.gw_work_is_done(self.handle):
                return engine.ended(self, error)
            if status == Status.UNSUPPORTED:
                raise error  # the stream is captured into a graph; the op goes on
            if status != Status.TIMED_OUT:
                return engine.ended(self, error)
        return None


class Channel:
    """A group and the queues before it. ``limits``: by the kind of op; ``hooks``: to be called
    before an error ends the group."""

    def __init__(self, engine, name, limits, hooks):
        self.engine = engine
        self.hooks = hooks
        self.name = name
        self.limits = limits
        self.unfinished = collections.Counter()  # by kind; under the engine's lock
        self.group = None
        self.handle = None
        self.failed = None  # the error of its formation, or of its end
        self.explain = ""
        self.lock = threading.RLock()
        self.queues = [collections.deque(), collections.deque()]
        self.in_flight = []
        self.refused = []  # ops that could not be posted, and why

    def open(self, group, explain=""):
        """The group is formed: what was queued may go."""
        with self.lock:
            self.explain = explain
            self.group = group
            self.handle = group._live_handle()
        self.pump()

    def fail(self, error):
        """Nothing will be posted any more: what is queued ends with the error."""
        with self.lock:
            self.failed = error
            queued = self.queued()
            for queue in self.queues:
                queue.clear()
            self.engine.queuing.discard(self)
        for op in queued:
            self.engine.ended(op, error)

    def has_queued(self):
        return any(self.queues)

    def queued(self):
        """What waits to be posted."""
        return list(dict.fromkeys(op for queue in self.queues for op in list(queue)))

    def post(self, op, more=False):
        """Posts it now, or queues it. ``more``: others follow at once, and then a flush()."""
        first = False
        self.engine.bound(op.work.deadline)
        with self.lock:
            op.number = next(_numbers)  # here: so a queue is in the order of these
            if self.failed is not None:
                self.refused.append((op, self.failed))
            elif any(self.queues[way] for way in op.ways) or not self._try(op, more):
                # Whoever waits for it has nothing to wait on here: the thread has to tell.
                op.work.watched = True
                first = not self.has_queued()
                for way in op.ways:
                    self.queues[way].append(op)
                self.engine.queuing.add(self)
        if first:
            self.engine.watch_all()
            self.pump()  # what it waits for may have ended meanwhile
        if self.refused:
            self._tell_refused()

    def _tell_refused(self):
        """Without the lock: the end of an op may post in other channels."""
        while self.refused:
            try:
                op, error = self.refused.pop(0)
            except IndexError:
                return
            self.engine.ended(op, error)

    def pump(self):
        """Posts what can be posted of the queues."""
        with self.lock:
            while any([self._advance(queue) for queue in self.queues]):
                pass
        self._tell_refused()

    def _advance(self, queue):
        """Whether the first of the queue, which has to be the first of each of its queues, was
        posted, or has ended."""
        if not queue:
            return False
        op = queue[0]
        if any(self.queues[way][0] is not op for way in op.ways):
            return False
        if not op.done and not self._try(op):
            return False
        for way in op.ways:
            self.queues[way].popleft()
        if not self.has_queued():
            self.engine.queuing.discard(self)
        return True

    def _try(self, op, more=False):
        """True: it is posted, or has ended with an error."""
        if self.failed is not None:
            self.refused.append((op, self.failed))
            return True
        limit = self.limits[op.kind]
        if self.handle is None or limit.used >= limit.most and self.unfinished[op.kind]:
            return False
        if op.work.gpu is not None and self.engine.queuing and has_to_wait(self.engine, op):
            return False
        handle = Handle()
        unfinished, ops = self.engine.outstanding, self.engine.ops
        post = lib.gw_post_more if more else lib.gw_post
        status = post(self.handle, ctypes.byref(op.call), ctypes.byref(handle))
        if status == Status.OK:
            return self._posted(op, handle)
        # Too many ops, memory that another op has, no memory to copy through: another op's end
        # changes that, or has just done so.
        others = unfinished or self.engine.outstanding or self.engine.ops != ops
        if status == Status.RESOURCE_EXHAUSTED and self.engine.pool.shrink():
            # What the pool kept for later tensors may do for this op.
            status = post(self.handle, ctypes.byref(op.call), ctypes.byref(handle))
            if status == Status.OK:
                return self._posted(op, handle)
        if status in (Status.BUSY, Status.RESOURCE_EXHAUSTED) and others:
            op.refusal = error_of(status).text
            return False
        self.refused.append((op, error_of(status)))
        return True

    def _posted(self, op, handle):
        op.handle = handle
        if op.work.entry is not None:
            op.work.recorder.started(op.work.entry)
        self.in_flight.append(op)
        self.engine.posted(op)
        return True
