# SPDX-License-Identifier: BSD-3-Clause
"""What a collective of the backend returns: a torch Work, made of one or several ops of the C
interface, or of none."""
import datetime
import threading
import time

import torch
from torch._C._distributed_c10d import Work

from .._cuda import cuda
from .._native import GradwireError, Status
from .capture import check_not_captured

_NO_TIMEOUT = datetime.timedelta(0)


def seconds(timeout, default):
    """A torch timeout as seconds: unset ones are None, 0 or negative."""
    if timeout is None:
        return default
    value = timeout.total_seconds()
    return value if value > 0 else default


class Gpu:
    """Of a work on tensors of a GPU: the device, and streams of the backend's: one for what is
    copied when the ops have ended, and one for futures if nothing is."""

    __slots__ = ("device", "side", "told", "before", "copied", "handles", "copies")

    def __init__(self, device, side, told):
        self.device = device
        self.side = side
        self.told = told
        self.before = None  # an event: those copies come after it
        self.copied = None  # an event: behind those copies
        self.handles = []  # of ops whose results a stream can wait for
        self.copies = None  # the engine's, if there are such copies


class GradwireWork(Work):
    """One call of a user's. Any thread.

    tensors: what the future gives; all of them are kept until the work is done
    finish:  called when every op has ended well, before anybody is told: copies results to where
             they belong
    gpu:     a Gpu, if the tensors are on one
    """

    def __init__(self, describe, tensors, timeout_s, waited=False, finish=None):
        super().__init__()
        self.describe = describe  # a function: the text is needed for errors only
        self.tensors = tensors
        self.finish = finish
        self.gpu = None
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s
        self.waited = waited  # somebody waits for it at once
        self.watched = False  # the engine's thread tells of its end, as nobody may wait for it
        self.error = None
        self.over = False
        self.ops = []
        self._lock = threading.Lock()
        self._left = 1  # one more than ops, until seal()
        self.sealed = False
        self.transfers = False  # a send or a recv
        self._sleepers = None  # an event, if a thread waits that no op wakes
        self._future = None

    # ---- for who posts

    def add(self, op):
        with self._lock:
            self._left += 1
            self.ops.append(op)

    def seal(self):
        """All ops of it are posted, or queued."""
        self.sealed = True
        self._one_less(None)

    def op_ended(self, error):
        self._one_less(error)

    def _one_less(self, error):
        with self._lock:
            if error is not None and self.error is None:
                self.error = error
            self._left -= 1
            if self._left:
                return
        finish, self.finish = self.finish, None
        if finish is not None and self.error is None:
            try:
                self._finish(finish)
            except Exception as raised:  # whatever it is, who waits has to hear of it
                self.error = raised
        if self.gpu is not None and self.gpu.copies is not None:
            self.gpu.copies.begun(self, self.gpu.copied)
        self._tell()

    def _finish(self, finish):
        if self.gpu is None:
            return finish()
        if self.gpu.before is not None:
            # Not sooner: other works copy on this stream too, and the caller's may be late.
            self.gpu.side.wait_event(self.gpu.before)
        with cuda.using(self.gpu.side):
            finish()
        self._keep(self.gpu.side)
        self.gpu.copied = self.gpu.side.record_event()

    def _tell(self):
        with self._lock:
            if self.gpu is not None and self.error is None and self.gpu.copied is None:
                # No more than these: an op keeps its work, and so its tensors, alive.
                self.gpu.handles = [op.handle for op in self.ops if op.handle is not None]
            self.ops = []
            future = self._future
            self.over = True
            sleepers = self._sleepers
        if sleepers is not None:
            sleepers.set()
        if future is not None:
            self._give(future)
        if self.error is not None:
            self.tensors = []

    def _give(self, future):
        if self.error is not None or self.gpu is None:
            return future.set_result(self.tensors if self.error is None else self.error)
        # A future of CUDA's takes note of the stream that is current when it gets its value. Of
        # several ops each may have ended in another thread, on that thread's stream.
        stream = self.gpu.told if self.gpu.copied is None else self.gpu.side
        try:
            for handle in self.gpu.handles:
                handle.order(stream, self.timeout_s)
        except GradwireError as raised:
            return future.set_result(raised)
        with cuda.using(stream):
            return future.set_result(self.tensors)

    # ---- torch's interface

    def wait(self, timeout=_NO_TIMEOUT):
        """Waits for the end; raises what became of the ops. A ``timeout`` of this call's own that
        passes raises TIMED_OUT, and the ops go on."""
        if self.gpu is not None:
            check_not_captured(
                self.gpu.device, self.describe, "wait before or after the capture; it goes on"
            )
        limit = seconds(timeout, None)
        until = None if limit is None else time.monotonic() + limit
        while not self.over:
            for op in list(self.ops):
                op.wait(until)
            if self.over:
                break
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise GradwireError(
                    Status.TIMED_OUT,
                    "%s is not done %.3f s after wait() was called; it goes on"
                    % (self.describe(), limit),
                )
            self._sleep(0.5 if left is None else min(left, 0.5))
        if self.error is not None:
            raise self.error
        if self.gpu is not None:
            self._order()
        return True

    def _sleep(self, limit):
        with self._lock:
            if self.over:
                return
            if self._sleepers is None:
                self._sleepers = threading.Event()
        self._sleepers.wait(limit)

    def _order(self):
        """What the caller's stream is given next comes after the results' copies."""
        gpu = self.gpu
        stream = cuda.current_stream(gpu.device)
        if gpu.copied is not None:
            stream.wait_event(gpu.copied)
        for handle in gpu.handles:
            handle.order(stream, self.timeout_s)
        self._keep(stream)

    def _keep(self, stream):
        for tensor in self.tensors:
            if cuda.holds(tensor):
                cuda.keep(tensor, stream)

    def _watch(self):
        """Somebody wants to be told of its end without waiting for it."""
        with self._lock:
            self.watched = True
            ops = list(self.ops)
        if ops:
            ops[0].channel.engine.watch(ops)

    def get_future(self):
        """A torch future of the tensors. If an op fails, what waits for it raises the error."""
        self._watch()
        with self._lock:
            if self._future is None:
                self._future = (
                    torch.futures.Future() if self.gpu is None or not self.tensors
                    else cuda.future(self.gpu.device)
                )
                # torch's future has no other way to be given an error that C++ sees too.
                self._shown = self._future.then(_value_or_raise)
                over = self.over
            else:
                over = False
        if over:
            self._give(self._future)
        return self._shown

    def is_completed(self):
        for op in list(self.ops):
            op.look()
        return self.over

    def is_success(self):
        return self.is_completed() and self.error is None

    def exception(self):
        self.is_completed()
        return self.error

    def result(self):
        self.wait()
        return self.tensors


def _value_or_raise(finished):
    value = finished.value()
    if isinstance(value, Exception):
        raise value
    return value


class AllWork(GradwireWork):
    """Several works as one: what _coalescing_manager and batch_isend_irecv return."""

    def __init__(self, works):
        tensors = [tensor for work in works for tensor in work.tensors]
        super().__init__(
            lambda: "one of %d coalesced calls" % len(works),
            tensors,
            max([work.timeout_s for work in works], default=1.0),
        )
        self._works = works
        self._joined = False
        on_gpu = next((work.gpu for work in works if work.gpu is not None), None)
        if on_gpu is not None:
            self.gpu = Gpu(on_gpu.device, on_gpu.side, on_gpu.told)
            self.finish = self._order_all  # behind what all of them copy
            self._join()

    def _join(self):
        """From now on it ends with the last of them. Until then it only asks them."""
        with self._lock:
            if self._joined:
                return
            self._joined = True
            self._left += len(self._works)
        for work in self._works:
            work.get_future().then(lambda _, work=work: self.op_ended(work.error))
        self.seal()

    def _order_all(self):
        for work in self._works:
            if work.gpu is not None:
                work._order()

    def wait(self, timeout=_NO_TIMEOUT):
        limit = seconds(timeout, None)
        until = None if limit is None else time.monotonic() + limit
        for work in self._works:
            left = None if until is None else max(until - time.monotonic(), 0.001)
            work.wait(_NO_TIMEOUT if left is None else datetime.timedelta(seconds=left))
        return super().wait(timeout) if self._joined else True

    def get_future(self):
        self._join()
        return super().get_future()

    def is_completed(self):
        if self._joined:
            return super().is_completed()
        return all([work.is_completed() for work in self._works])

    def exception(self):
        if self._joined:
            return super().exception()
        return next((w.error for w in self._works if w.exception() is not None), None)

    def is_success(self):
        return self.is_completed() and self.exception() is None
