# SPDX-License-Identifier: BSD-3-Clause
"""What all groups of a process share: its client, and the thread that tells of the ends of ops.

Posting is in channel.py.
"""
import collections
import contextlib
import logging
import math
import os
import select
import threading
import time

from .._cuda import cuda
from .._native import GradwireError, Status, error_of, lib, milliseconds
from ..client import Client
from .callbacks import Callbacks
from .channel import BOTH, GROUP_OPS, RECVS, SENDS, Channel, Limit
from .order import Copies
from .wire import Tally

log = logging.getLogger("gradwire.torch")

# How often the thread asks for ops on a GPU's tensors: nothing tells when a stream has come to one.
_GPU_LOOK_S = 0.0002
# How long the thread sleeps if it is not told of anything: a bound for what it might have missed.
_LOOK_S = 0.5
# Ops that end are looked for among the oldest, until so many have not ended, and among all if there
# is none, or if that is so long ago.
_UNFINISHED_MOST = 16
_LOOK_AT_ALL_S = 0.002
_AFTER_ABORT_S = 10.0
# With these the daemon has ended an op's group.
_ENDS = (Status.ABORTED, Status.MISMATCH, Status.UNAVAILABLE)
# Of all groups together, somewhat less than the GW_MAX_TRANSFERS that a client may have unfinished.
# Others wait in channels.
_TRANSFERS = {SENDS: 192, RECVS: 448, BOTH: 64}


class Engine:
    """The client and its thread. ``acquire()`` and ``release()`` count its users."""

    _lock = threading.Lock()
    _engine = None

    @classmethod
    def acquire(cls):
        with cls._lock:
            engine = cls._engine
            if engine is None or engine.pid != os.getpid():
                engine = cls._engine = Engine()
            engine._users += 1
            return engine

    @classmethod
    def current(cls):
        return cls._engine

    def release(self):
        with Engine._lock:
            self._users -= 1
            if self._users or Engine._engine is not self:
                return
            Engine._engine = None
        self._stop()

    def __init__(self):
        self.pid = os.getpid()
        self.client = Client()
        self.pool = None
        self.lock = threading.Lock()
        self.outstanding = 0
        self._watched = 0
        self._on_gpu = 0  # of those
        self._sides = {}  # by device
        self.copies = Copies()  # of works on a GPU
        self.callbacks = Callbacks()
        self._entered = False  # the thread is one for a device
        self._users = 0
        self._channels = []
        # Channels that have ops queued; each adds and removes itself under its own lock.
        self.queuing = set()
        self._transfer_limits = {kind: Limit(most) for kind, most in _TRANSFERS.items()}
        self._pumping = self._pump_again = False
        self._nearest = math.inf  # no op has to end before
        self._looked = 0.0  # when all ops were asked last
        self.ops = 0
        self.counts = collections.Counter()
        self.slower = collections.Counter()
        self.tally = Tally()  # of wire formats
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._polls = False  # the thread looks at the completion descriptor
        self._stopping = False
        self._completion_fd = self.client.completion_fd()
        self._thread = threading.Thread(target=self._run, name="gradwire", daemon=True)
        self._thread.start()

    # ---- channels and ops

    def channel(self, name, hooks, transfers=False):
        """For collectives of a group, or for its transfers. ``hooks``: the group's AbortHooks."""
        limits = self._transfer_limits if transfers else {SENDS: Limit(GROUP_OPS)}
        channel = Channel(self, name, limits, hooks)
        with self.lock:
            self._channels.append(channel)
        return channel

    def close_channels(self, channels):
        """Leaves the group of these, which are all that it has. What is unfinished ends with an
        error. It does not wait for the daemon to close the group: that takes until all processes of
        the host have left it, in whichever order they leave their groups."""
        groups = set()
        for channel in channels:
            channel.fail(
                GradwireError(Status.ABORTED, "the process group %s was destroyed" % channel.name)
            )
            with channel.lock:
                groups.add(channel.group)
                channel.group = channel.handle = None
        # No thread has it in hand any more.
        for group in groups - {None}:
            group.close()
        deadline = time.monotonic() + _AFTER_ABORT_S
        for channel in channels:
            for op in list(channel.in_flight):
                op.wait(deadline)
        with self.lock:
            for channel in channels:
                self._channels.remove(channel)
                for op in list(channel.in_flight):
                    self._uncount(op)

    @staticmethod
    def _uncount(op):
        if op.counted:
            op.counted = False
            op.channel.limits[op.kind].used -= 1
            op.channel.unfinished[op.kind] -= 1

    def slower_way(self, what):
        """A slower way than there could be is taken: said once, and counted."""
        with self.lock:
            self.slower[what] += 1
            first = self.slower[what] == 1
        if first:
            log.warning("gradwire: %s", what)

    def side_streams(self, device):
        """The engine's own of a GPU: for copies, and for futures of what needs none."""
        with self.lock:
            if device not in self._sides:
                self._sides[device] = cuda.new_stream(device), cuda.new_stream(device)
            return self._sides[device]

    def posted(self, op):
        with self.lock:
            self.outstanding += 1
            self.ops += 1
            op.counted = True
            op.channel.limits[op.kind].used += 1
            op.channel.unfinished[op.kind] += 1
            # What is queued goes when another op has ended, of whichever channel.
            if not op.work.watched and not self.queuing:
                return
        self.watch([op])

    def watch(self, ops):
        """From now on the thread tells of their ends. Of other ops whoever waits for them finds
        out; if nobody does, the thread looks every now and then."""
        with self.lock:
            on_gpu = self._on_gpu
            for op in ops:
                if op.handle is None or op.done or op.watched:
                    continue
                op.watched = True
                self._watched += 1
                self._on_gpu += op.work.gpu is not None
            # The completion descriptor does not tell of streams.
            wakes = self._watched > 0 and not self._polls or self._on_gpu > 0 and on_gpu == 0
        if wakes:
            self.wake()

    def watch_all(self):
        for channel in list(self._channels):
            self.watch(list(channel.in_flight))

    def wake(self):
        os.eventfd_write(self._wake_fd, 1)

    def ended(self, op, error):
        channel = op.channel
        with channel.lock:
            if op.done:
                return
            op.done = True
            if op.handle is not None:
                channel.in_flight.remove(op)
        with self.lock:
            if op.handle is not None:
                self.outstanding -= 1
                self._uncount(op)
                self._watched -= op.watched
                self._on_gpu -= op.watched and op.work.gpu is not None
            if error is not None:
                self.counts["failed"] += 1
        op.keep = None
        work, op.call = op.work, None
        if getattr(error, "code", None) in _ENDS and channel.failed is None:
            channel.hooks.call()
        if getattr(error, "code", None) == Status.NOT_FOUND and channel.failed is not None:
            error = channel.failed  # the daemon had not read it yet when its group was left
        if error is not None and not getattr(error, "named", False):
            text = "%s: %s%s" % (work.describe(), error.text, channel.explain)
            error = GradwireError(error.code, text)
            error.named = True
        work.op_ended(error)
        if self.queuing:
            self._pump_all()

    def _pump_all(self):
        """Posts what can be posted in any channel. One thread does it at a time, and never within
        itself: what is refused ends ops, whose ends call this."""
        with self.lock:
            self._pump_again = True
            if self._pumping:
                return
            self._pumping = True
        try:
            while True:
                with self.lock:
                    if not self._pump_again:
                        self._pumping = False
                        return
                    self._pump_again = False
                for channel in list(self._channels):
                    channel.pump()
        except BaseException:
            self._pumping = False
            raise

    @contextlib.contextmanager
    def _pump_later(self):
        """What ends meanwhile is told first, and then what that allows is posted, at once."""
        with self.lock:
            ours = not self._pumping
            self._pumping = True
        try:
            yield
        finally:
            with self.lock:
                again = ours and self._pump_again
                if ours:
                    self._pumping = False
            if again:
                self._pump_all()

    def expire(self, op):
        """Its time is over. It would go on and write into memory that the user takes for free, and
        the others would wait for this process: so the group ends everywhere."""
        with self.lock:
            if op.expired:
                return
            op.expired = True
        work, channel = op.work, op.channel
        text = "%s reached its timeout of %.1f s" % (work.describe(), work.timeout_s)
        error = GradwireError(
            Status.TIMED_OUT, text + ": it was not posted, since " + self._why(op)
        )
        with channel.lock:
            posted = op.handle is not None
            if not posted:
                channel.failed = channel.failed or error  # so that nobody posts it from now on
        if posted:
            status = lib.gw_wait(op.handle, 1)
            if status == Status.OK:
                return self.ended(op, None)
            # Its text says whom it waits for.
            error = GradwireError(Status.TIMED_OUT, "%s: %s" % (text, error_of(status).text))
            channel.hooks.call()
            try:
                with channel.lock:
                    if channel.group is not None:
                        channel.group.abort(text)
                lib.gw_wait(op.handle, milliseconds(_AFTER_ABORT_S))
            except GradwireError:
                pass
        error.reword(error.text + channel.explain)
        error.named = True
        channel.fail(error)
        self.ended(op, error)

    @staticmethod
    def _why(op):
        if op.channel.handle is None:
            return "its group is not formed yet: has the other process posted its part?"
        return op.refusal or "earlier ops are not done"

    # ---- the thread

    def _run(self):
        completions = select.poll()
        completions.register(self._completion_fd, select.POLLIN)
        completions.register(self._wake_fd, select.POLLIN)
        waked = select.poll()
        waked.register(self._wake_fd, select.POLLIN)
        while not self._stopping:
            with self.lock:
                self._polls = self._watched > 0
                poll = completions if self._polls else waked
                on_gpu = self._on_gpu
            if on_gpu:
                time.sleep(_GPU_LOOK_S)
            ready = poll.poll(0 if on_gpu else self._sleep_ms())
            if any(fd == self._wake_fd for fd, _ in ready):
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake_fd)
            try:
                self.callbacks.go_on()
                if self.pool is not None:
                    self.pool.collect()
                told = any(fd == self._completion_fd for fd, _ in ready)
                if not self._sweep() and told:
                    self._look_at_groups()
            except Exception:  # the thread has to go on: others depend on it
                log.exception("gradwire: the thread that tells of the ends of ops")

    def bound(self, deadline):
        """An op that ends at ``deadline`` at the latest was called."""
        if deadline < self._nearest:
            self._nearest = deadline

    def _sleep_ms(self):
        return max(1, int(min(_LOOK_S, self._nearest - time.monotonic()) * 1000))

    def _sweep(self):
        """Tells of all that has ended. Returns whether anything has."""
        now = time.monotonic()
        with self._pump_later():
            # As a rule the oldest end first. So thousands that are behind them are not asked.
            any_ended = now - self._looked < _LOOK_AT_ALL_S and self._look_at_ops(_UNFINISHED_MOST)
            if not any_ended:
                self._looked = now
                any_ended = self._look_at_ops(None)
        if self._nearest <= now:
            self._expire_all(now)
        for channel in list(self._channels):
            if channel.has_queued() or channel.refused:
                channel.pump()
        return any_ended

    def _look_at_ops(self, most):
        """In each channel until so many one after the other have not ended; None: at all."""
        any_ended = False
        for channel in list(self._channels):
            unfinished = 0
            for op in list(channel.in_flight):
                if op.work.gpu is not None and not self._entered:
                    self._entered = True
                    cuda.enter(op.work.gpu.device)
                if op.look():
                    any_ended, unfinished = True, 0
                else:
                    unfinished += 1
                    if unfinished == most:
                        break
        return any_ended

    def _expire_all(self, now):
        self._nearest = math.inf
        for channel in list(self._channels):
            for op in list(channel.in_flight) + channel.queued():
                if op.work.deadline <= now:
                    self.expire(op)
                else:
                    self.bound(op.work.deadline)

    def _look_at_groups(self):
        """The descriptor is readable for an abort that nobody has looked at, too."""
        for channel in list(self._channels):
            try:
                with channel.lock:
                    if channel.group is not None:
                        channel.group.check()
            except GradwireError as error:
                if channel.failed is None and error.code == Status.ABORTED:
                    channel.hooks.call()
                    channel.fail(error)
        time.sleep(0.0005)

    def _stop(self):
        self._stopping = True
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(10)
        self.callbacks.stop()
        os.close(self._wake_fd)
        self.client.close()
