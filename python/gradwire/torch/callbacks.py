# SPDX-License-Identifier: BSD-3-Clause
"""The threads that give futures their values, and so run what users asked to be called back by.

A callback may make calls and wait for them, or for other futures. So none runs in the engine's
thread, which ends works and sees to timeouts, nor within a call of the user's, and none waits for
another's end: if all threads are in callbacks, the next one gets a new thread.
"""
import collections
import logging
import threading
import time

log = logging.getLogger("gradwire.torch")

# Threads that are kept while there is nothing to do. Others end.
_KEPT = 2
_STOP_S = 1.0


class Callbacks:
    """Any thread. Functions begin in the order in which they are given."""

    def __init__(self):
        self._changed = threading.Condition()
        self._waiting = collections.deque()
        self._threads = set()
        self._idle = 0
        self._coming = 0  # threads that were started and have not looked yet
        self._stopped = False

    def give(self, function):
        """Has it called, soon, in a thread of these."""
        with self._changed:
            self._waiting.append(function)
        self.go_on()

    def go_on(self):
        """Sees to it that each of what waits has a thread."""
        with self._changed:
            if self._idle + self._coming >= len(self._waiting):
                return self._changed.notify(len(self._waiting))
            self._coming += 1
            thread = threading.Thread(target=self._run, name="gradwire callbacks", daemon=True)
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            # The engine's thread tries again.
            with self._changed:
                self._coming -= 1
                self._threads.discard(thread)
            log.warning("gradwire: a future's callbacks have to wait for others: %s", error)

    def _next(self):
        """None: the thread is not needed any more."""
        with self._changed:
            while not self._waiting:
                if self._stopped or self._idle >= _KEPT:
                    self._threads.discard(threading.current_thread())
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return self._waiting.popleft()

    def _run(self):
        with self._changed:
            self._coming -= 1
        while True:
            function = self._next()
            if function is None:
                return
            try:
                function()
            except Exception:  # the others' are given all the same
                log.exception("gradwire: a future could not be given its value")
            del function

    def stop(self):
        """What was given is still called. Callbacks that go on are not waited for."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            threads = list(self._threads)
        deadline = time.monotonic() + _STOP_S
        for thread in threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
