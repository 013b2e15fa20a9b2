# SPDX-License-Identifier: BSD-3-Clause
"""How survivors and newcomers find each other, without daemons: threads, a store, and groups that
form if all their members come within five seconds."""
import threading
import time

import torch
from torch.distributed import HashStore

import gradwire.torch
from gradwire import GradwireError, Status
from gradwire.torch import rounds

STORE = HashStore()
rounds._backend_of = lambda group: group
rounds._rounds = lambda group, store: store


class Group:
    """What rounds.py asks of a process group, and of its backend."""

    group_name = "0"
    layout = None

    def __init__(self, name, rank=0, size=1, generation="init"):
        self.name, self._rank, self._size = name, rank, size
        self.fresh, self.generation, self.keepers = generation is None, generation, size
        self.engine = self

    def _channels(self):
        return []

    @property
    def channel(self):
        return self

    group = None

    def get_reconfigure_handle(self):
        return self.name

    def reconfigure(self, options):
        key = "formed/%d" % options.uuid
        STORE.add(key, 1)
        until = time.monotonic() + 5
        while STORE.add(key, 0) < len(options.handles):
            if time.monotonic() > until:
                raise GradwireError(Status.TIMED_OUT, "somebody did not join")
            time.sleep(0.01)
        self._rank, self._size = options.handles.index(self.name), len(options.handles)


def regrouped(groups, store, **how):
    """What each of the groups, at once, was told, or the text that it raised."""
    said = {}

    def one(group, how):
        try:
            said[group.name] = rounds.regroup(group, store=store, **how)
        except GradwireError as error:
            said[group.name] = error.text

    threads = [threading.Thread(target=one, args=(g, {**how, **more})) for g, more in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return said


def plain(*groups):
    return [(group, {}) for group in groups]


def job(size):
    return [Group("abcdef"[rank], rank, size) for rank in range(size)]


def the_first_start():
    groups = [Group(name, rank, 1, None) for rank, name in enumerate("abc")]
    said = regrouped(plain(*groups[::-1]), HashStore(), size=3)
    assert [said[name].rank for name in "abc"] == [0, 1, 2], said
    assert said["a"].survivors == [] and said["a"].newcomers == [0, 1, 2], said
    # Without a size nobody knows that all are here.
    alone = regrouped(plain(Group("x", 0, 1, None)), HashStore(), timeout=0.5)
    assert "at the first start, pass size=" in alone["x"], alone


def survivors_and_newcomers():
    store, (a, b, c) = HashStore(), job(3)
    new = [Group(name, 0, 1, None) for name in "xy"]
    said = regrouped(plain(new[0], c, a, new[1], b), store, size=5)
    assert [said[name].rank for name in "abc"] == [0, 1, 2], said
    assert said["x"] == said["x"]._replace(size=5, survivors=[0, 1, 2], newcomers=[3, 4]), said
    assert not new[0].fresh and store.add("%d/come" % store.add("round", 0), 0) == 0
    # All five are survivors of the next one; two are lost, and nobody says who.
    began = time.monotonic()
    said = regrouped(plain(a, new[0], new[1]), store, patience=3.0)
    assert time.monotonic() - began >= 3.0
    assert sorted(m.rank for m in said.values()) == [0, 1, 2] and a._rank == 0, said
    assert said["a"].newcomers == [], said


def one_that_comes_late():
    store, (a, b, c) = HashStore(), job(3)
    said = regrouped(plain(a, b), store, patience=3.0)
    assert said["a"].size == 2, said
    # It is a newcomer now: it waits for the others, and comes behind them.
    late = threading.Thread(target=lambda: said.update(regrouped(plain(c), store)))
    late.start()
    while not rounds.waiting(a, store):
        time.sleep(0.01)
    said.update(regrouped(plain(a, b), store, patience=30))
    late.join(60)
    assert said["c"].rank == 2 and said["c"].newcomers == [2], said


def one_that_dies_while_it_waits():
    store, (a, b) = HashStore(), job(2)
    dead = Group("x", 0, 1, None)
    rounds._Round(store, dead, None)  # it has come, and will not join
    said = regrouped(plain(a, b), store, patience=3.0)
    assert [said["a"].size, said["b"].rank, said["a"].newcomers] == [2, 1, []], said


def a_bound():
    store, (a, b, c) = HashStore(), job(3)
    said = regrouped(plain(a, b), store, size=3, patience=0.1, timeout=3.0)
    assert all("rank 2 of the group that was did not come" in text for text in said.values()), said
    said = regrouped(plain(*job(2)), HashStore(), size=3, timeout=3.0)
    assert all("2 processes are here; size=3 are wanted" in text for text in said.values()), said


def who_is_lost():
    class Layout:
        places = [[0, 2], [1, 3, 4]]

    for text, lost in (
        ("a client process of rank 1 died: member 2 (pid 7) hung up (seen by rank 0)", {4}),
        ("rank 1 was silent for 1501 ms, op 2 (seen by rank 0)", {1, 3, 4}),
        ("rank 0 left the group: member 1 (pid 9) closed its client", {2}),
        ("a client of rank 1 aborted the group: process 1 (pid 6004): reached its timeout", set()),
        ("rank 7 was silent", set()),
    ):
        assert rounds.lost_by(text, Layout) == lost, (text, rounds.lost_by(text, Layout))
    assert rounds.lost_by("rank 0 was silent", None) == set()


for part in (the_first_start, survivors_and_newcomers, one_that_comes_late,
             one_that_dies_while_it_waits, a_bound, who_is_lost):
    part()
    print("passed: %s" % part.__name__, flush=True)
