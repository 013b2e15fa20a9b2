# SPDX-License-Identifier: BSD-3-Clause
"""Ops, and the queues that they are posted through.

A channel is a group of the C interface and a queue before it. Ops of a channel are posted in the
order of the calls. What cannot be posted now waits in the channel, and holds back nothing of any
other channel: while its group is being formed, while as many ops as it may have are unfinished, or
while its memory belongs to another op.
"""
import collections
import ctypes
import threading
import time

from .._cuda import cuda, handle_of
from .._native import Status, error_of, lib, milliseconds

# The daemon takes 64 unfinished ops of a group (limits.active_ops); commands beyond that would hold
# back those of other groups.
GROUP_OPS = 32
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


class Op:
    """One op of the C interface.

    call:  what is posted
    keep:  what has to stay alive until the op has ended
    """

    __slots__ = ("work", "channel", "call", "keep", "handle", "done", "expired", "watched")

    def __init__(self, work, channel, call, keep):
        self.work = work
        self.channel = channel
        self.call = call
        self.keep = keep
        self.handle = None
        self.done = False
        self.expired = False
        self.watched = False  # by the thread

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
            if status != Status.TIMED_OUT:
                return engine.ended(self, error)
        return None


class Channel:
    """A group and the queue before it. ``name_ranks``: adds to an error what its ranks are."""

    def __init__(self, engine, name, most=GROUP_OPS):
        self.engine = engine
        self.name = name
        self.most = most
        self.group = None
        self.handle = None
        self.failed = None  # the error of its formation, or of its end
        self.explain = ""
        self.lock = threading.RLock()
        self.queue = collections.deque()
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
            queued, self.queue = list(self.queue), collections.deque()
        for op in queued:
            self.engine.ended(op, error)

    def post(self, op):
        """Posts it now, or queues it."""
        with self.lock:
            if self.failed is not None:
                self.refused.append((op, self.failed))
            elif self.queue or not self._try(op):
                # Whoever waits for it has nothing to wait on here: the thread has to tell.
                op.work.waited = False
                self.queue.append(op)
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
        """Posts what can be posted of the queue."""
        with self.lock:
            while self.queue:
                op = self.queue[0]
                if not op.done and not self._try(op):
                    break
                self.queue.popleft()
        self._tell_refused()

    def _try(self, op):
        """True: it is posted, or has ended with an error."""
        if self.handle is None or len(self.in_flight) >= self.most:
            return False
        handle = Handle()
        status = lib.gw_post(self.handle, ctypes.byref(op.call), ctypes.byref(handle))
        if status == Status.OK:
            op.handle = handle
            self.in_flight.append(op)
            self.engine.posted(op)
            return True
        # Too many ops, memory that another op has, no memory to copy through: another op's end
        # changes that.
        if status in (Status.BUSY, Status.RESOURCE_EXHAUSTED) and self.engine.outstanding:
            self.engine.wake()
            return False
        self.refused.append((op, error_of(status)))
        return True
