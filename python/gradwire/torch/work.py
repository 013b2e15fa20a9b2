# SPDX-License-Identifier: BSD-3-Clause
"""What a collective of the backend returns: a torch Work, made of one or several ops of the C
interface, or of none."""
import contextlib
import datetime
import threading
import time

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Work

from .._cuda import cuda
from .._native import GradwireError, Status
from .capture import check_not_captured

NO_TIMEOUT = datetime.timedelta(0)
# How long wait() waits for a future to be given its value, once the work is over.
_GIVEN_S = 5.0


# Whether torch keeps works that are not waited for yet. Older ones never do.
_registers = getattr(c10d, "_allow_inflight_collective_as_graph_input", lambda: False)


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

    engine:  the Engine, whose threads give the future its value; None if that happens at once
    tensors: what the future gives; all of them are kept until the work is done
    finish:  called when every op has ended well, before anybody is told: copies results to where
             they belong
    modes:   the Modes for that
    gpu:     a Gpu, if the tensors are on one
    """

    def __init__(self, engine, describe, tensors, timeout_s, waited=False, finish=None):
        super().__init__()
        self.engine = engine
        self.describe = describe  # a function: the text is needed for errors only
        self.tensors = tensors
        self.finish = finish
        self.modes = None
        self.gpu = None
        self.number = 0  # of its calls, in its group
        self.recorder = self.entry = None  # of torch's Flight Recorder
        self.source = None  # of a recv: the other process
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
        self._given = None  # an event: the future has its value
        self._unregistering = False
        self._earlier = ()  # works that this one does not end before
        self._later = []  # (work, whether it fails with this one)

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

    def follow_all(self, works, fails=False):
        """Before seal(): this one ends only after those have. ``fails``: and fails if one does."""
        self._earlier = works
        for work in works:
            with self._lock:
                self._left += 1
            with work._lock:
                if not work.over:
                    work._later.append((self, fails))
                    continue
            self._one_less(work.error if fails else None)

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
        with self.modes.hold() if self.modes is not None else contextlib.nullcontext():
            self._copy(finish)

    def _copy(self, finish):
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
        if self.entry is not None and self.error is None:
            self.recorder.completed(self.entry)
        with self._lock:
            if self.gpu is not None and self.error is None and self.gpu.copied is None:
                # No more than these: an op keeps its work, and so its tensors, alive.
                self.gpu.handles = [op.handle for op in self.ops if op.handle is not None]
            self.ops = []
            future = self._future
            # Of these the results are still to be put in order for who waits for this one.
            self._earlier = [work for work in self._earlier if work.gpu is not None]
            later, self._later = self._later, []
            self.over = True
            sleepers = self._sleepers
            if self.error is not None:
                self.tensors = []
        if sleepers is not None:
            sleepers.set()
        for work, fails in later:
            work.op_ended(self.error if fails else None)
        if future is not None:
            self.engine.callbacks.give(lambda: self._give_apart(future))

    def _give_apart(self, future):
        """In a thread for callbacks. A thread of the user's has its own device."""
        if self.gpu is not None:
            cuda.enter(self.gpu.device)
        self._give(future)

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

    def wait(self, timeout=NO_TIMEOUT):
        """Waits for the end; raises what became of the ops. A ``timeout`` of this call's own that
        passes raises TIMED_OUT, and the ops go on."""
        if self.gpu is not None:
            self._check_not_captured(self.gpu)
        for work in self._earlier:
            if work.gpu is not None:
                self._check_not_captured(work.gpu)
        limit = seconds(timeout, None)
        until = None if limit is None else time.monotonic() + limit
        while not self.over:
            for op in list(self.ops):
                op.wait(until)
            for work in self._earlier:
                for op in list(work.ops):
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
        given = self._given
        if given is not None:
            given.wait(_GIVEN_S)  # whoever has waited finds the future done
        if self.error is not None:
            raise self.error
        for work in self._earlier:
            work.order_results()
        if self.gpu is not None:
            self._order()
        if _registers():
            self._unregister()
        return True

    def _unregister(self):
        """Torch keeps works for compiled programs that are given their tensors, until somebody has
        waited for them; it finds them by the tensors."""
        if self._unregistering:
            return
        self._unregistering = True
        try:
            for tensor in self.tensors:
                torch.ops._c10d_functional.wait_tensor(tensor)
        finally:
            self._unregistering = False

    def _check_not_captured(self, gpu):
        check_not_captured(
            gpu.device, self.describe, "wait before or after the capture; it goes on"
        )

    def order_results(self):
        """Of a work that is over: what the current stream is given next finds its results."""
        if self.gpu is not None and self.error is None:
            self._order()

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
            self.engine.watch(ops)
        for work in self._earlier:
            work._watch()

    def get_future(self):
        """A torch future of the tensors. If an op fails, what waits for it raises the error."""
        if is_asked():
            _asking.found.append(self)
            return torch.futures.Future()
        self._watch()
        with self._lock:
            if self._future is None:
                self._future = (
                    torch.futures.Future() if self.gpu is None or not self.tensors
                    else cuda.future(self.gpu.device)
                )
                # torch's future has no other way to be given an error that C++ sees too.
                self._shown = self._future.then(_value_or_raise)
                self._given = threading.Event()
                # The first of its callbacks: so a callback may wait for this work, too.
                given = self._given
                self._shown.add_done_callback(lambda _: given.set())
                over = self.over
            else:
                over = False
        if over:
            self._give(self._future)  # nobody has asked for a callback yet
        return self._shown

    def is_completed(self):
        for work in [self, *self._earlier]:
            for op in list(work.ops):
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

    def synchronize(self):
        self.wait()

    def source_rank(self):
        if self.source is None:
            raise GradwireError(
                Status.INVALID_ARGUMENT, "%s is no receive: it has no source" % self.describe()
            )
        return self.source

    _source_rank = source_rank

    def _get_sequence_number(self):
        return self.number


_asking = threading.local()


def is_asked():
    """Whether get_future() is called by behind(), to which a work makes itself known."""
    return getattr(_asking, "found", None) is not None


def behind(holder):
    """The work that a holder of torch's has, if it is one of these. Torch hands out the work of a
    Python backend in a holder that passes on wait() and get_future() alone."""
    _asking.found = []
    try:
        holder.get_future()
    except (RuntimeError, NotImplementedError):
        pass  # another backend's, which has no futures
    finally:
        found, _asking.found = _asking.found, None
    return found[0] if found else None


def _value_or_raise(finished):
    value = finished.value()
    if isinstance(value, Exception):
        raise value
    return value
