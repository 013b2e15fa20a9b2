# SPDX-License-Identifier: BSD-3-Clause
"""Lose processes, take some in, and go on with the same process group.

Whoever wants to be of the next group comes to a round in the job's store: survivors of the group
that was, and newcomers. A round is decided once, by the first who finds that all have come who are
to come: that one writes down who they are, and all go by it. Whoever came too late for one round
goes to the next: with nothing that the others would want to keep, if its own group has gone on
without it. So all is well if a process dies, whenever it does: the others find each other in the
next round.
"""
import collections
import datetime
import hashlib
import json
import logging
import re
import time

import torch.distributed as dist
from torch._C._distributed_c10d import ReconfigureOptions
from torch.distributed.distributed_c10d import PrefixStore, _get_default_group, _world

from .._native import GradwireError, Status
from ..survivors import lost_rank

log = logging.getLogger("gradwire.torch")

Regrouped = collections.namedtuple("Regrouped", "rank size survivors newcomers")

_MEMBER = re.compile(r"\bmember (\d+) \(pid \d+\)")
_SHORTEST_S, _LONGEST_S = 0.001, 0.02


def _backend_of(group):
    from .transfers import GradwireBackend

    backends = {id(b): b for b in (group._get_backend(d) for d in group._device_types)}
    backend = next(iter(backends.values()))
    if len(backends) != 1 or not isinstance(backend, GradwireBackend):
        raise ValueError(
            "process group %s has the backends %s: gradwire.torch regroups a group whose only "
            "backend is gradwire" % (
                group.group_name, ", ".join(sorted(b.name() for b in backends.values()))))
    return backend


def _rounds(group, store):
    if store is None:
        store = _world.pg_map[_get_default_group()][1]
    return PrefixStore("gradwire/regroup/%s" % group.group_name, store)


def lost_by(text, layout):
    """The processes of a group that an abort's text calls lost."""
    rank = lost_rank(text)
    if rank is None or layout is None or rank >= len(layout.places):
        return set()
    processes = layout.places[rank]
    member = _MEMBER.search(text)
    if member is None or "a client process of rank" not in text and "left the group" not in text:
        return set(processes)
    return {processes[int(member.group(1))]} if int(member.group(1)) < len(processes) else set()


def _errors(backend):
    """What has ended its group."""
    errors = [channel.failed for channel in backend._channels() if channel.failed is not None]
    try:
        if backend.channel.group is not None:
            backend.channel.group.check()
    except GradwireError as error:
        errors.append(error)
    return errors


def _lost(backend):
    """The ranks that the end of the backend's group names."""
    return set().union(*(lost_by(error.text, backend.layout) for error in _errors(backend)))


def group_error(group=None):
    """The GradwireError that has ended a process group, None if it is well. What DDP and others
    raise after a call failed is a RuntimeError that has its text alone."""
    backend = _backend_of(group or _get_default_group())
    return next(iter(_errors(backend)), None) if backend.engine is not None else None


class _Round:
    """One round, as a process sees it that has come to it."""

    def __init__(self, store, backend, size):
        self.store = store
        self.number = store.add("round", 0)
        self.size = size
        self.backend = backend
        self.generation = None if backend.fresh else backend.generation
        if self.generation is not None and store.add("moved/%s" % self.generation, 0):
            log.warning("gradwire: rank %d came too late: the others of %s go on without it, and "
                        "it is taken in as a newcomer", backend._rank, backend.group_name)
            self.generation, backend.fresh = None, True
        self.came = time.monotonic()
        self.here = {}  # by ticket: what each said
        said = {
            "handle": backend.get_reconfigure_handle(),
            "generation": self.generation,
            "rank": backend._rank,
            "lost": sorted(_lost(backend)) if self.generation is not None else [],
        }
        self.ticket = store.add(self._key("come"), 1) - 1
        store.set(self._key("here/%d" % self.ticket), json.dumps(said))

    def _key(self, name):
        return "%d/%s" % (self.number, name)

    def _look(self):
        for ticket in range(self.store.add(self._key("come"), 0)):
            key = self._key("here/%d" % ticket)
            if ticket not in self.here and self.store.check([key]):
                self.here[ticket] = json.loads(self.store.get(key))

    def _ours(self):
        """By rank in the group that was: the tickets of those that are here."""
        return {said["rank"]: ticket for ticket, said in self.here.items()
                if said["generation"] == self.generation is not None}

    def missing(self):
        """The ranks of the group that was that are neither here nor lost."""
        if self.generation is None:
            return []
        ours = self._ours()
        lost = {rank for ticket in ours.values() for rank in self.here[ticket]["lost"]}
        return [r for r in range(self.backend.keepers) if r not in ours and r not in lost]

    def _complete(self, patience):
        if self.size is not None and len(self.here) < self.size:
            return False
        if self.generation is None:
            # Newcomers wait for those who have what is to be kept, if there are any.
            return self.size is not None and all(
                said["generation"] is None for said in self.here.values())
        return not self.missing() or time.monotonic() - self.came >= patience

    def _decide(self):
        """[[ticket, whether it is a survivor]] in the order of the new ranks."""
        ours = sorted(self._ours().items())
        others = sorted((said["rank"], ticket) for ticket, said in self.here.items()
                        if ticket not in dict(ours).values())
        chosen = [[t, True] for _, t in ours] + [[t, False] for _, t in others]
        if self.generation is not None:
            self.store.add("moved/%s" % self.generation, 1)
        self.store.set(self._key("decision"), json.dumps(chosen))
        self.store.add("round", 1)

    def decision(self, patience, deadline):
        pause = _SHORTEST_S
        while not self.store.check([self._key("decision")]):
            self._look()
            if self._complete(patience) and self.store.add(self._key("decides"), 1) == 1:
                self._decide()
            elif time.monotonic() >= deadline:
                raise GradwireError(Status.TIMED_OUT, self._why())
            else:
                time.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_S)
        return json.loads(self.store.get(self._key("decision")))

    def _why(self):
        missing = self.missing()
        if missing:
            what = "rank%s %s of the group that was did not come, and not to wait for more of " \
                "them is what patience= is for" % (
                    "s" if len(missing) > 1 else "", ", ".join(map(str, missing)))
        elif self.size is not None:
            what = "size=%d are wanted" % self.size
        else:
            what = "those who have what is to be kept did not come: at the first start, pass size="
        return "regroup of process group %s: after %.1f s %d processes are here; %s" % (
            self.backend.group_name, time.monotonic() - self.came, len(self.here), what)

    def handles(self, chosen):
        self._look()
        return [self.here[ticket]["handle"] for ticket, _ in chosen]


def regroup(group=None, *, size=None, store=None, patience=30.0, timeout=300.0):
    """Gives a process group new members; it stays the same object. Collective among those who are
    to be its members: call it on every survivor after an error that ended the group, and on every
    process that is to be taken in, which made its group with ``enable_reconfigure=True``. Survivors
    keep their order and come first, so that rank 0 has what newcomers need.

    group:    the default one
    size:     at least so many have to be there. None: the survivors, and whoever waits with them.
              At the first start, when all are newcomers, there has to be a size
    store:    where they meet; the default group's
    patience: how long, in seconds, survivors wait for others of their group which no error calls
              lost, and members for each other to join
    timeout:  for all of it, in seconds

    Returns Regrouped: this process's ``rank`` of ``size``, and the new ranks of ``survivors`` and
    of ``newcomers``. Raises TIMED_OUT if nobody decided until then."""
    group = group or _get_default_group()
    backend = _backend_of(group)
    rounds = _rounds(group, store)
    deadline = time.monotonic() + timeout
    while True:
        here = _Round(rounds, backend, size)
        chosen = here.decision(patience, deadline)
        tickets = [ticket for ticket, _ in chosen]
        if here.ticket not in tickets:
            continue  # it came when the others had just been chosen
        survives = dict(chosen)[here.ticket]
        options = ReconfigureOptions()
        text = "%s %d %s" % (group.group_name, here.number, chosen)
        options.uuid = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
        options.handles = here.handles(chosen)
        left = max(deadline - time.monotonic(), 1.0)
        options.timeout = datetime.timedelta(seconds=min(left, max(patience, 1.0)))
        try:
            group.reconfigure(options)
        except GradwireError as error:
            # Its members look for each other in the next round.
            _count_as(backend, here, not survives, sum(stays for _, stays in chosen))
            if error.code not in (Status.TIMED_OUT, Status.ABORTED) or left <= 1.0:
                raise
            log.warning("gradwire: %s; once more", error.text)
            continue
        _count_as(backend, here, False, len(chosen))
        return Regrouped(
            backend._rank, backend._size,
            [rank for rank, (_, stays) in enumerate(chosen) if stays],
            [rank for rank, (_, stays) in enumerate(chosen) if not stays],
        )


def _count_as(backend, round_, fresh, keepers):
    """Of which round's group it is, and how many of its first ranks have what is to be kept."""
    backend.generation, backend.fresh = "round %d" % round_.number, fresh
    backend.keepers = keepers


def waiting(group=None, store=None):
    """How many processes have come to the next regroup(): newcomers that wait to be taken in, and
    survivors that have seen an error. One process asks, and tells the others, since all have to
    call regroup() at the same place."""
    rounds = _rounds(group or _get_default_group(), store)
    return rounds.add("%d/come" % rounds.add("round", 0), 0)
