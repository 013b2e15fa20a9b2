# SPDX-License-Identifier: BSD-3-Clause
"""Forms a group of a job's processes, through the job's store: any of them, in any order.

Each process writes what its daemon says of itself; all read all. Processes whose daemons say the
same are members of one rank: that, and no variable of the environment, tells who shares a host.
"""
import os
import secrets
import socket
import time

from .._native import GradwireError, Status


class Layout:
    """At which daemon each process of a group is. Daemons are numbered in the order in which the
    processes come to them; these numbers are the ranks that the C interface's errors name.

    places: [daemons] the processes of each
    """

    def __init__(self, infos):
        daemons = {}
        ranks = [daemons.setdefault(info, len(daemons)) for info in infos]
        self.places = [[] for _ in daemons]
        for process, rank in enumerate(ranks):
            self.places[rank].append(process)

    def explain(self, global_ranks):
        """What the daemons' ranks are, for errors that name them: with one process at each daemon
        a daemon's rank is the process's."""
        if all(len(members) == 1 for members in self.places):
            if list(global_ranks) == list(range(len(global_ranks))):
                return ""
        return " (daemons' ranks: %s)" % "; ".join(
            "%d has %s %s" % (
                rank,
                "process" if len(members) == 1 else "processes",
                ", ".join(str(global_ranks[process]) for process in members),
            )
            for rank, members in enumerate(self.places)
        )


def _exchange(store, rank, size, own, timeout, name):
    """[size] what each process wrote, and the group's id."""
    deadline = time.monotonic() + timeout
    # A group that is made anew has the old one's keys: each process counts its own visits.
    visit = store.add("gradwire/visit/%d" % rank, 1)
    base = "gradwire/%d" % visit
    store.set("%s/info/%d" % (base, rank), own)
    if rank == 0:
        store.set("%s/id" % base, secrets.token_bytes(8))

    def get(key, what):
        # A wait of the store's would hold up all other threads that use it.
        pause = 0.001
        while not store.check([key]):
            if time.monotonic() >= deadline:
                raise GradwireError(
                    Status.TIMED_OUT,
                    "process group %s was not formed within %.1f s: %s has not come to it: is that "
                    "process running, and does it create the same groups?" % (name, timeout, what),
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        return store.get(key)

    said = [get("%s/info/%d" % (base, other), "rank %d" % other) for other in range(size)]
    group_id = int.from_bytes(get("%s/id" % base, "rank 0"), "little")
    if store.add("%s/read" % base, 1) == size:
        # All have read all: jobs that make thousands of groups leave nothing of them but visits.
        for key in ["id", "read"] + ["info/%d" % other for other in range(size)]:
            store.delete_key("%s/%s" % (base, key))
    return said, group_id


def join(client, group_id, rank, infos, timeout, what, global_ranks):
    """Joins the group of these, as its ``rank``. Returns (Group, Layout). An error says ``what`` it
    is about, and which processes the daemons' ranks have, whose members its text counts."""
    layout = Layout(infos)
    try:
        return client.join_processes(group_id, 0, rank, infos, timeout=timeout), layout
    except GradwireError as error:
        error.reword("%s: %s%s" % (what, error.text, layout.explain(global_ranks)))
        raise


def form(client, store, rank, size, timeout, name, global_ranks):
    """Collective among ``size`` processes. Returns (Group, Layout). Bound: twice ``timeout``."""
    own = client.describe() + b"%d@%s" % (os.getpid(), socket.gethostname().encode())
    said, group_id = _exchange(store, rank, size, own, timeout, name)
    length = len(client.describe())
    infos = [text[:length] for text in said]
    return join(client, group_id, rank, infos, timeout, "process group %s" % name, global_ranks)
