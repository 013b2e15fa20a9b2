# SPDX-License-Identifier: BSD-3-Clause
"""Parts of torch_backend.py: the order of ops and streams, and memory that is freed early."""
import threading

import torch
import torch.distributed as dist

from gradwire.torch.engine import Engine
from unfinished import until

COUNT = 1 << 20


def total_of(job):
    return job.world * (job.world - 1) / 2


def all_are(tensor, value):
    return bool((tensor == value).all())


def all_have_ended():
    """Those that nobody waits for, too: their results are where they belong."""
    until(lambda: Engine.current().outstanding == 0)


def late_streams(job):
    """A call returns while its stream is held; what the stream then writes is what is sent. Other
    groups go on, also where results are copied once more."""
    gpu = job.gpu
    late, quick = gpu.stream(), gpu.stream()
    for count, held in ((3, gpu.not_held), (3, gpu.held), (COUNT, gpu.not_held), (COUNT, gpu.held)):
        source = torch.full((count,), 10.0 + job.rank)
        first, mine = torch.zeros(count), torch.zeros(count)
        second = torch.full((count,), float(job.rank))
        other, gathered = torch.ones(5), [torch.zeros(count) for _ in range(job.world)]
        gpu.synchronize()
        with held(late) as release:
            with gpu.using(late):
                first.copy_(source)
                work = dist.all_reduce(first, async_op=True)
                mine.copy_(source)
                listed = dist.all_gather(gathered, mine, async_op=True)
            with gpu.using(quick):
                behind = dist.all_reduce(second, async_op=True)
                dist.all_reduce(other, group=job.others)
                assert all_are(other, job.world)
                blocks = [torch.zeros(7) for _ in range(job.world)]
                dist.all_gather(blocks, torch.full((7,), float(job.rank)), group=job.others)
                assert all(all_are(block, rank) for rank, block in enumerate(blocks)), blocks
            if gpu.is_gpu and held == gpu.held:
                assert not work.is_completed() and not behind.is_completed()
            release()
            for each in (behind, listed, work):
                each.wait()
        assert all_are(first, 10 * job.world + total_of(job)), first
        assert all_are(second, total_of(job)), second
        assert all(all_are(each, 10 + rank) for rank, each in enumerate(gathered)), gathered
        job.checks += 1


def waits_order_streams(job):
    """What a stream is given right after wait() has the result, also where it is copied once more,
    and of calls that wait themselves. 16 MiB: the copy back takes long enough to be overtaken."""
    gpu = job.gpu
    user = gpu.stream()
    gpu.synchronize()
    with gpu.using(user):
        for round_ in range(8):
            tensor = torch.full((4 * COUNT,), float(job.rank + round_))
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            seen = tensor + 1
            right = total_of(job) + round_ * job.world
            assert all_are(seen, right + 1), round_
            dist.all_reduce(tensor)
            seen = tensor * 2
            assert all_are(seen, 2 * right * job.world), round_
            blocks = [torch.empty(COUNT) for _ in range(job.world)]
            dist.all_gather(blocks, torch.full((COUNT,), float(job.rank)))
            seen = torch.stack(blocks) * 1
            assert all(all_are(block, rank) for rank, block in enumerate(seen))
            columns = torch.full((COUNT, 2), float(job.rank)).t()[0]  # not contiguous
            dist.all_reduce(columns, async_op=True).wait()
            seen = columns + 0
            assert all_are(seen, total_of(job))
            job.checks += 4


def futures(job):
    """A future's value on another stream than the call's; what follows it has it too."""
    gpu = job.gpu
    one, other = gpu.stream(), gpu.stream()
    gpu.synchronize()
    for round_ in range(4):
        with gpu.using(one):
            tensor = torch.full((4 * COUNT,), float(job.rank))
            future = dist.all_reduce(tensor, async_op=True).get_future()
            doubled = future.then(lambda done: done.value()[0] * 2)
        with gpu.using(other):
            seen = future.wait()[0] + 1
            assert all_are(seen, total_of(job) + 1), round_
            assert all_are(doubled.wait() + 0, 2 * total_of(job)), round_
        with gpu.using(one):
            blocks = [torch.empty(COUNT) for _ in range(job.world)]
            future = dist.all_gather(
                blocks, torch.full((COUNT,), float(job.rank)), async_op=True
            ).get_future()
        with gpu.using(other):
            seen = torch.stack(list(future.wait())) + 0
            assert all(all_are(block, rank) for rank, block in enumerate(seen)), round_
        # Several calls in one, of which no one waits for each.
        with gpu.using(one):
            tensors = [torch.full((n,), float(job.rank)) for n in (5, COUNT, 2 * COUNT)]
            with dist._coalescing_manager(async_ops=True, device=gpu.device) as manager:
                for each in tensors:
                    dist.all_reduce(each)
        manager.wait()
        assert all(all_are(each, total_of(job)) for each in tensors), round_
        job.checks += 4


def sends(job):
    """A send on a stream that is held holds back no recv and no collective."""
    gpu = job.gpu
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    late, quick = gpu.stream(), gpu.stream()
    for held in (gpu.not_held, gpu.held):
        source, total = torch.full((COUNT,), float(job.rank)), torch.ones(4)
        sent, got = torch.zeros(COUNT), torch.zeros(COUNT)
        gpu.synchronize()
        with held(late) as release:
            with gpu.using(quick):
                receiving = dist.irecv(got, left)
            with gpu.using(late):
                sent.copy_(source)
                sending = dist.isend(sent, right)
            with gpu.using(quick):
                dist.all_reduce(total)
                assert all_are(total, job.world)
            if gpu.is_gpu and held == gpu.held:
                assert not sending.is_completed()
            release()
            receiving.wait()
            sending.wait()
        assert all_are(got, left), got
        job.checks += 1


def freed_early(job):
    """Tensors and works that are let go of at once: their memory is not given to others before it
    has been read and written."""
    gpu = job.gpu
    side = gpu.stream()
    for round_ in range(12):
        stream = side if round_ % 2 else None
        with gpu.using(stream):
            out = torch.empty(COUNT * job.world)
            mine = torch.full((COUNT,), float(job.rank + round_))
            work = dist.all_gather_into_tensor(out, mine, async_op=True)
            del mine
            forgotten = torch.full((COUNT,), 3.0)
            dist.all_reduce(forgotten, async_op=True)
            columns = torch.full((COUNT // 2, 2), 5.0)[:, 1]
            dist.all_reduce(columns, async_op=True)
            del forgotten, columns
            # If any of that is free already, these are it.
            others = [torch.full((COUNT,), -1.0) for _ in range(6)]
            work.wait()
            del work
            blocks = out.view(job.world, -1) + 0
            assert all(all_are(b, rank + round_) for rank, b in enumerate(blocks)), round_
            all_have_ended()
            assert all(all_are(each, -1) for each in others), round_
        job.checks += 1


def both_devices(job):
    """Tensors on the CPU and on the GPU in one group, in one order; never in one call."""
    ours, theirs = torch.full((9,), 1.0), torch.full((9,), 2.0, device="cpu")
    works = [dist.all_reduce(t, async_op=True) for t in (ours, theirs)]
    for work in works:
        work.wait()
    assert all_are(ours, job.world) and all_are(theirs, 2 * job.world)
    if job.gpu.is_gpu:
        job.fails("UNSUPPORTED", ["one device"],
                  lambda: dist.all_gather_into_tensor(torch.zeros(9 * job.world), theirs))
    job.checks += 1


def from_threads(job):
    """A thread that has not used CUDA posts and waits, and the backend's own posts what is queued:
    neither has a context of its own making."""
    tensor = torch.full((70_000,), float(job.rank))
    queued = [torch.full((7,), float(job.rank)) for _ in range(100)]
    job.gpu.synchronize()
    raised = []

    def post():
        try:
            dist.all_reduce(tensor)
            for each in queued:
                dist.all_reduce(each, async_op=True)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=post)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    all_have_ended()
    assert all_are(tensor, total_of(job))
    assert all(all_are(each, total_of(job)) for each in queued)
    job.checks += 1


def same_memory(job):
    """Calls that use one tensor, on several streams: with no wait between them, or with one on a
    stream that the next call's knows nothing of."""
    gpu = job.gpu
    one, other, user = gpu.stream(), gpu.stream(), gpu.stream()
    for held in (gpu.not_held, gpu.held):
        tensor, whole = torch.full((COUNT,), 1.0), torch.empty(COUNT * job.world)
        gpu.synchronize()
        with held(one) as release:
            with gpu.using(one):
                works = [dist.all_reduce(tensor, async_op=True)]
            with gpu.using(other):
                works.append(dist.all_reduce(tensor, async_op=True))
                works.append(dist.all_gather_into_tensor(whole, tensor, async_op=True))
            release()
            for work in reversed(works):
                work.wait()
        assert all_are(tensor, job.world ** 2) and all_are(whole, job.world ** 2), tensor
        job.checks += 1
    for round_ in range(8):
        tensor = torch.full((4 * COUNT,), float(job.rank + round_))
        blocks = [torch.zeros(COUNT) for _ in range(job.world)]
        mine = torch.full((COUNT,), float(job.rank + round_))
        gpu.synchronize()
        with gpu.using(one):
            work = dist.all_reduce(tensor, async_op=True)
            listed = dist.all_gather(blocks, mine, async_op=True)
        with gpu.using(user):
            work.wait()
            if not gpu.is_gpu:
                listed.wait()
        with gpu.using(other):
            again = dist.all_reduce(tensor, async_op=True)
            # The backend copies the blocks to where this one reads.
            behind = dist.all_reduce(blocks[0], async_op=True)
            again.wait()
            behind.wait()
            right = (total_of(job) + round_ * job.world) * job.world
            assert all_are(tensor, right), round_
            assert all_are(blocks[0], round_ * job.world), round_
            listed.wait()
            assert all_are(blocks[-1], job.world - 1 + round_), round_
        job.checks += 2


def captured(job):
    """A call on a stream that is captured into a graph is refused, and a wait; the graph is good,
    and a call that is unfinished goes on meanwhile."""
    gpu = job.gpu
    if not gpu.is_gpu:
        return
    source, graph = torch.full((1000,), 3.0), torch.cuda.CUDAGraph()
    tensor = torch.full((16 * COUNT,), float(job.rank))
    gpu.synchronize()
    with gpu.using(gpu.stream()):
        work = dist.all_reduce(tensor, async_op=True)
    words = ["captured into a CUDA graph", "before or after the capture"]
    with torch.cuda.graph(graph):
        doubled = source * 2
        job.fails("UNSUPPORTED", words, lambda: dist.all_reduce(doubled))
        job.fails("UNSUPPORTED", [*words, "it goes on"], work.wait)
        until(work.is_completed)
        doubled += 1
    source.fill_(5.0)
    graph.replay()
    work.wait()
    assert all_are(doubled, 11) and all_are(tensor, total_of(job))
    dist.all_reduce(doubled)
    assert all_are(doubled, 11 * job.world)
    job.checks += 1


PARTS = (late_streams, waits_order_streams, futures, freed_early, both_devices, from_threads,
         same_memory, captured)
