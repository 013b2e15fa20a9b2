# SPDX-License-Identifier: BSD-3-Clause
"""Who is left of a group that was aborted: the survivors agree on it through the job's store,
before they form a smaller group.

Each survivor writes what it has finished. The first to claim it decides: it waits until everybody
reported who is not known to be lost, or until its patience is at an end, takes the ranks of which
every member reported, and writes them down; all the others read that. So all go by one answer, and
who comes late is told that it is not part of it.
"""
import collections
import json
import re
import time

from ._native import GradwireError, Status

# What an abort's text says of a rank that will not come back (lib/base/abort_reason.cc).
_LOST = re.compile(
    r"rank (\d+) was silent|a client process of rank (\d+) died|the daemon of rank (\d+) was"
    r"|rank (\d+) left the group: member \d+ \(pid \d+\) closed"
)
# Between two looks at the store for one process.
_LOOK_S = 0.02

Survivors = collections.namedtuple("Survivors", "ranks reports")


def lost_rank(text):
    """The rank that an abort's text calls lost; None where it names none."""
    found = _LOST.search(text)
    return int(next(n for n in found.groups() if n is not None)) if found else None


def _decide(store, base, nranks, members, lost, patience):
    deadline = time.monotonic() + patience
    reports = {}
    everybody = [(rank, member) for rank in range(nranks) for member in range(members)]

    def look(rank, member):
        try:
            text = store.get("%s/here/%d/%d" % (base, rank, member), _LOOK_S)
        except GradwireError as error:
            if error.code != Status.TIMED_OUT:
                raise
        else:
            reports[rank, member] = json.loads(text)

    while True:
        for place in everybody:
            if place not in reports:
                look(*place)
        missing = [place for place in everybody if place not in reports and place[0] != lost]
        if not missing or time.monotonic() >= deadline:
            break
    # Every rank has as many members as every other, so a rank that lost one cannot go on.
    ranks = [r for r in range(nranks) if all((r, m) in reports for m in range(members))]
    said = [[r, m, reports[r, m]] for r in ranks for m in range(members)]
    return {"ranks": ranks, "reports": said}


def agree(
    store, base, rank, nranks, member, members, report, lost=None, patience=30.0, timeout=60.0
):
    """Collective among those that are left of ``nranks`` x ``members``. ``base``: a prefix of keys
    that nobody used before; ``report``: what this process says of itself, as JSON has it; ``lost``:
    a rank that need not be waited for. Returns Survivors: ``ranks``, those that are left, in order,
    and ``reports`` by (rank, member). Raises NOT_FOUND where this process's rank is not among
    them, TIMED_OUT where nobody decided: whoever claimed that is lost too, so try another base."""
    store.set("%s/here/%d/%d" % (base, rank, member), json.dumps(report).encode())
    if store.claim("%s/decides" % base):
        decision = _decide(store, base, nranks, members, lost, patience)
        store.set("%s/decision" % base, json.dumps(decision).encode())
    else:
        decision = json.loads(store.get("%s/decision" % base, patience + timeout))
    if rank not in decision["ranks"]:
        raise GradwireError(
            Status.NOT_FOUND,
            "rank %d is not among those that go on, %s: it or another process of it was lost, or "
            "did not report within %.1f s" % (rank, decision["ranks"], patience),
        )
    return Survivors(decision["ranks"], {(r, m): said for r, m, said in decision["reports"]})
