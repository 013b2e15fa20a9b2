# SPDX-License-Identifier: BSD-3-Clause
"""What a collective of the backend returns: a torch Work, made of one or several ops of the C
interface, or of none."""
import datetime
import threading
import time

import torch
from torch._C._distributed_c10d import Work

from .._native import GradwireError, Status

_NO_TIMEOUT = datetime.timedelta(0)


def seconds(timeout, default):
    """A torch timeout as seconds: unset ones are None, 0 or negative."""
    if timeout is None:
        return default
    value = timeout.total_seconds()
    return value if value > 0 else default


class GradwireWork(Work):
    """One call of a user's. Any thread.

    tensors: what the future gives; all of them are kept until the work is done
    finish:  called when every op has ended well, before anybody is told: copies results to where
             they belong
    """

    def __init__(self, describe, tensors, timeout_s, waited=False, finish=None):
        super().__init__()
        self.describe = describe  # a function: the text is needed for errors only
        self.tensors = tensors
        self.finish = finish
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s
        self.waited = waited  # somebody waits for it at once, so that no other thread has to
        self.error = None
        self.over = threading.Event()
        self.ops = []
        self._lock = threading.Lock()
        self._left = 1  # one more than ops, until seal()
        self._future = None

    # ---- for who posts

    def add(self, op):
        with self._lock:
            self._left += 1
            self.ops.append(op)

    def seal(self):
        """All ops of it are posted, or queued."""
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
                finish()
            except Exception as raised:  # whatever it is, who waits has to hear of it
                self.error = raised
        self._tell()

    def _tell(self):
        with self._lock:
            self.ops = []
            future = self._future
            self.over.set()
        if future is not None:
            future.set_result(self.error if self.error is not None else self.tensors)
        if self.error is not None:
            self.tensors = []

    # ---- torch's interface

    def wait(self, timeout=_NO_TIMEOUT):
        """Waits for the end; raises what became of the ops. A ``timeout`` of this call's own that
        passes raises TIMED_OUT, and the ops go on."""
        limit = seconds(timeout, None)
        until = None if limit is None else time.monotonic() + limit
        while not self.over.is_set():
            for op in list(self.ops):
                op.wait(until)
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0 and not self.over.is_set():
                raise GradwireError(
                    Status.TIMED_OUT,
                    "%s is not done %.3f s after wait() was called; it goes on"
                    % (self.describe(), limit),
                )
            self.over.wait(0.5 if left is None else min(left, 0.5))
        if self.error is not None:
            raise self.error
        return True

    def get_future(self):
        """A torch future of the tensors. If an op fails, what waits for it raises the error."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                # torch's future has no other way to be given an error that C++ sees too.
                self._shown = self._future.then(_value_or_raise)
                over = self.over.is_set()
            else:
                over = False
        if over:
            self._future.set_result(self.error if self.error is not None else self.tensors)
        return self._shown

    def is_completed(self):
        return self.over.is_set()

    def is_success(self):
        return self.over.is_set() and self.error is None

    def exception(self):
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
        for work in works:
            self._left += 1
            work.get_future().then(lambda _, work=work: self.op_ended(work.error))
        self.seal()

    def wait(self, timeout=_NO_TIMEOUT):
        limit = seconds(timeout, None)
        until = None if limit is None else time.monotonic() + limit
        for work in self._works:
            left = None if until is None else max(until - time.monotonic(), 0.001)
            work.wait(_NO_TIMEOUT if left is None else datetime.timedelta(seconds=left))
        return super().wait(timeout)
