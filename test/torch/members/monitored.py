# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that looks at monitored barriers, on gradwire and on Gloo: who is missing is
named, the same ones by both."""
import datetime
import re
import time

import torch
import torch.distributed as dist

import gradwire.torch

TIMEOUT = datetime.timedelta(seconds=2)


def barrier(group, timeout=TIMEOUT, all_ranks=True):
    """The ranks that it names, [] if it passes; and its text."""
    try:
        dist.monitored_barrier(group, timeout, wait_all_ranks=all_ranks)
    except RuntimeError as error:
        text = str(error)
        named = re.search(r"Ranks? ([\d, ]+) failed to pass", text)
        return [int(n) for n in named.group(1).split(", ")] if named else None, text
    return [], ""


def agree(told, what):
    """The same on every process."""
    said = [None] * dist.get_world_size()
    dist.all_gather_object(said, told)
    assert all(other == said[0] for other in said), (what, said)


def missing(job, who):
    """Without some of the ranks: rank 0 of Gloo names them, and every process of gradwire."""
    ours, gloo = dist.new_group(), dist.new_group(backend="gloo")
    for group in (ours, gloo):
        dist.monitored_barrier(group, TIMEOUT)
    store = dist.distributed_c10d._get_default_store()
    key = "missing %s" % who
    if job.rank in who:
        # It comes when all others have given up, and is told so.
        for number in range(job.world - len(who)):
            store.wait(["%s/%s" % (key, [r for r in range(job.world) if r not in who][number])])
        named, text = barrier(ours)
        assert "this process came when the others had waited" in text, text
    else:
        began = time.monotonic()
        named, text = barrier(ours)
        took = time.monotonic() - began
        assert named == who, text
        assert text.startswith("rank %d: monitored_barrier 2 of process group" % job.rank), text
        assert job.rank > 0 or took >= 2.0, took
        if 0 not in who:
            by_gloo, gloo_text = barrier(gloo)
            if job.rank == 0:
                assert by_gloo == who, gloo_text
        store.set("%s/%d" % (key, job.rank), "")
    # No group has ended: calls go on, and the next barrier passes.
    total = torch.ones(3)
    dist.all_reduce(total, group=ours)
    assert total.tolist() == [float(job.world)] * 3
    assert barrier(ours) == ([], "")
    if job.rank == 0:
        print("passed: without %s" % who, flush=True)


def many(job):
    """Nothing of those that are over stays in the store."""
    store = dist.distributed_c10d._get_default_store()
    group = dist.new_group()
    dist.monitored_barrier(group, TIMEOUT)
    dist.barrier()
    before = store.num_keys()
    dist.barrier()
    for _ in range(300):
        dist.monitored_barrier(group, TIMEOUT)
    dist.barrier()
    assert store.num_keys() <= before + job.world + 2, (before, store.num_keys())
    dist.barrier()
    if job.rank == 0:
        print("passed: many", flush=True)


def a_hang(job):
    """A process that hangs in a call: it is named, and the barrier needs no daemon's help."""
    if job.rank == 1:
        time.sleep(4)
        named, text = barrier(dist.group.WORLD)
        assert "came when the others" in text, text
    else:
        named, text = barrier(dist.group.WORLD)
        assert named == [1], text
    agree(0, "nothing")


class Job:
    def __init__(self):
        dist.init_process_group("gradwire")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()


def main():
    torch.set_num_threads(1)
    job = Job()
    missing(job, [2])
    missing(job, list(range(1, job.world)))
    missing(job, [0, 2])
    many(job)
    a_hang(job)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
