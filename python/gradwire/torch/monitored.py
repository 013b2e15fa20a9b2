# SPDX-License-Identifier: BSD-3-Clause
"""A barrier that names who is missing. It goes through the group's store, not through daemons: so
it tells also if what hangs is a daemon or the way to it, and its end by a timeout ends no group.

Each process counts itself and leaves its key. Rank 0 waits until all are counted, or looks at the
end whose keys there are, and writes that down: all go by it. If rank 0 does not come either, the
first of the others to lose patience does so.
"""
import json
import time

from .._native import GradwireError, Status

_SHORTEST_S, _LONGEST_S = 0.0002, 0.02
# How long others wait for rank 0's word beyond their own timeout, since it may have come later.
_GRACE_S = 2.0


def _until(ready, deadline):
    """Whether ``ready()`` was true before the deadline. A wait of the store's would hold up all
    other threads that use it."""
    pause = _SHORTEST_S
    while not ready():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_S)
    return True


class Monitored:
    """The barriers of one group of processes, which all make them in the same order."""

    def __init__(self, store, group_id, rank, size, names, group_name):
        """``names``: by rank, the global ranks."""
        self._store, self._rank, self._size, self._names = store, rank, size, names
        self._group_name = group_name
        self._base = "gradwire/monitored/%016x" % group_id
        self._number = 0

    def _key(self, what, number=None):
        return "%s/%d/%s" % (self._base, self._number if number is None else number, what)

    def _missing(self):
        return [rank for rank in range(self._size)
                if not self._store.check([self._key("here/%d" % rank)])]

    def _forget(self, number):
        """All have come to a later one: nobody looks at its keys any more."""
        for what in ["come", "verdict"] + ["here/%d" % rank for rank in range(self._size)]:
            self._store.delete_key(self._key(what, number))

    def barrier(self, timeout_s):
        """Raises TIMED_OUT with all who have not come."""
        self._number += 1
        began = time.monotonic()
        store, verdict = self._store, self._key("verdict")
        store.set(self._key("here/%d" % self._rank), b"")
        store.add(self._key("come"), 1)

        def known():
            if store.check([verdict]):
                return True
            return self._rank == 0 and store.add(self._key("come"), 0) == self._size

        all_came = _until(known, began + timeout_s + (_GRACE_S if self._rank else 0))
        if self._rank == 0 or not all_came:
            offer = json.dumps([] if all_came else self._missing())
            # Whoever was first is right for all.
            missing = json.loads(store.compare_set(verdict, "", offer))
        else:
            missing = json.loads(store.get(verdict))
        if self._rank == 0 and not missing and self._number > 1:
            self._forget(self._number - 1)
        if missing:
            raise GradwireError(Status.TIMED_OUT, self._text(missing, timeout_s))

    def _text(self, missing, timeout_s):
        text = "rank %d: monitored_barrier %d of process group %s: " % (
            self._names[self._rank], self._number, self._group_name)
        if self._rank in missing:
            return text + "this process came when the others had waited for it in vain"
        # The words are Gloo's, whose readers know them.
        return text + "%s %s failed to pass monitoredBarrier in %d ms" % (
            "Rank" if len(missing) == 1 else "Ranks",
            ", ".join(str(self._names[rank]) for rank in missing), timeout_s * 1000)
