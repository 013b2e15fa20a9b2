# SPDX-License-Identifier: BSD-3-Clause
"""What a user wants to be called when a process group ends by an error, before it does: to write
down where everybody is, such as Flight Recorder's dump. Any thread calls them: the one that waits
for an op, or the engine's, so that a hook must make no calls of the group, nor wait for any."""
import logging
import threading

log = logging.getLogger("gradwire.torch")


class AbortHooks:
    """Of one process group. Each is called once for each time that the group ends; whoever finds
    its end meanwhile waits until all have been called, since it may end the process."""

    def __init__(self):
        self._hooks = {}  # by the number that the user gave
        self._lock = threading.RLock()
        self._called = False

    def register(self, number, hook):
        with self._lock:
            if number in self._hooks:
                raise ValueError("there is an abort hook %d already: unregister it first" % number)
            self._hooks[number] = hook

    def unregister(self, number):
        with self._lock:
            if self._hooks.pop(number, None) is None:
                raise ValueError("there is no abort hook %d" % number)

    def begin(self):
        """The group has formed anew."""
        with self._lock:
            self._called = False

    def call(self):
        if not self._hooks:
            return
        with self._lock:
            if self._called:
                return
            self._called = True
            for number, hook in list(self._hooks.items()):
                try:
                    hook()
                except Exception:
                    log.exception("gradwire: abort hook %d failed", number)
