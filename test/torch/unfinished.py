# SPDX-License-Identifier: BSD-3-Clause
"""Parts of backend.py: calls that nobody waits for, and more of them than may be unfinished."""
import time

import torch
import torch.distributed as dist

import gradwire.torch


def until(done):
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "nothing told of an op's end for 30 s"
        time.sleep(0.001)


def not_waited_for(job):
    """Ops whose ends are asked for, told to a future, or of no interest to anybody."""
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    for ask in (lambda work: work.is_completed(), lambda work: work.get_future().done()):
        got = torch.zeros(3)
        work = dist.irecv(got, left)
        dist.isend(torch.full((3,), 1.0 + job.rank), right)
        until(lambda: ask(work))
        assert bool((got == 1.0 + left).all())
    got = [torch.zeros(2) for _ in range(3)]
    sent = [torch.full((2,), float(job.rank)) for _ in range(3)]
    together = dist.batch_isend_irecv([dist.P2POp(dist.irecv, t, left) for t in got]
                                      + [dist.P2POp(dist.isend, t, right) for t in sent])
    until(lambda: all(work.is_completed() for work in together))
    assert all(bool((t == left).all()) for t in got)
    # More than a group may have: what is queued goes when earlier ones end, which nobody waits for.
    got = [torch.zeros(2) for _ in range(600)]
    last = [dist.irecv(t, left) for t in got][-1]
    for i in range(600):
        dist.isend(torch.full((2,), float(i)), right)
    last.wait()
    assert bool((got[-1] == 599.0).all())
    until(lambda: gradwire.torch.engine.Engine.current().outstanding == 0)
    assert [t[0].item() for t in got] == list(range(600))


def others_go_on(job):
    """As many sends, and then recvs, as all groups may have together: another group still moves."""
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    group = dist.new_group(list(range(job.world)))
    got = [torch.zeros(2) for _ in range(700)]

    def exchange():
        whole = torch.zeros(job.world)
        dist.all_to_all_single(whole, torch.full((job.world,), float(job.rank)), group=group)
        assert whole.tolist() == [float(rank) for rank in range(job.world)]

    sends = [dist.isend(torch.full((2,), float(i)), right) for i in range(350)]
    exchange()
    recvs = [dist.irecv(t, left) for t in got]
    exchange()
    sends += [dist.isend(torch.full((2,), float(i)), right) for i in range(350, 700)]
    for work in sends + recvs:
        work.wait()
    assert [t[0].item() for t in got] == list(range(700))
    dist.destroy_process_group(group)


def destroyed_with_a_queue(job):
    """More receives than a group may have, so that some wait to be posted."""
    group = dist.new_group(list(range(job.world)))
    works = [dist.irecv(torch.zeros(2), (job.rank + 1) % job.world, group=group)
             for _ in range(530)]
    if job.rank == 0:
        # The others do not, so that leaving waits for its end while those of receives come in.
        works.append(dist.all_reduce(torch.zeros(2), group=group, async_op=True))
    dist.destroy_process_group(group)
    for work in works:
        job.fails("ABORTED", ["rank %d: " % job.rank, "float32[2]"], work.wait)
