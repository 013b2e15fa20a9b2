# SPDX-License-Identifier: BSD-3-Clause
"""Parts of cuda_tensors.py: calls on the same tensors with no wait between them, or one on another
stream, which come in the order of the calls as they do with NCCL."""
import datetime
import threading

import torch
import torch.distributed as dist

import gradwire.torch.channel
import gradwire.torch.engine
import gradwire.torch.order
import gradwire.torch.work
from gradwire import Status


def parts(cuda, stream_class):
    """The parts, for the stand-ins of torch.cuda and of its streams."""
    return [
        lambda job, part=part: part(job, cuda, stream_class)
        for part in (twice, late_result, after_other_copies, behind_begun_copies,
                     before_other_copies, ended_meanwhile, behind_what_waits, columns, halo,
                     in_a_callback)
    ]


def twice(job, cuda, Stream):
    """One tensor in several calls, in the order of one stream."""
    late = Stream()
    tensor = torch.full((500,), 1.0)
    total = torch.zeros(500 * job.world)
    late.hold(True)
    with cuda.using(late):
        works = [dist.all_reduce(tensor, async_op=True), dist.all_reduce(tensor, async_op=True),
                 dist.all_gather_into_tensor(total, tensor, async_op=True),
                 dist.all_reduce(tensor, async_op=True)]
    late.hold(False)
    for work in reversed(works):
        work.wait()
    assert bool((tensor == job.world ** 3).all()), tensor
    assert bool((total == job.world ** 2).all()), total
    job.checks += 1


def late_result(job, cuda, Stream):
    """A wait on one stream, whose result is still to be copied; then a call on another, which has
    not been told to come after it."""
    late, user, quick = Stream(), Stream(), Stream()
    tensor = torch.full((300,), float(job.rank))
    receives = job.rank != 0
    if receives:
        late.hold(True)
    with cuda.using(late):
        work = dist.broadcast(tensor, 0, async_op=True)
    with cuda.using(user):
        work.wait()
    with cuda.using(quick):
        work = dist.all_reduce(tensor, async_op=True)
    if receives:
        assert tensor[0] == job.rank  # nothing was received yet
        late.hold(False)
    work.wait()
    assert bool((tensor == 0).all()), tensor
    job.checks += 1


def _released_by_waits(late):
    """Lets the stream go when somebody waits for a work: a call that does not wait for an earlier
    one is through before."""
    work, waits = gradwire.torch.work.GradwireWork, []
    real = work.wait

    def wait(self, *arguments):
        waits.append(self)
        late.hold(False)
        return real(self, *arguments)

    work.wait = wait

    def undo():
        work.wait = real
        late.hold(False)
        return len(waits)

    return undo


def after_other_copies(job, cuda, Stream):
    """A call on a tensor that the backend itself copies an earlier call's result to."""
    for part in ("list", "strided"):
        late, quick = Stream(), Stream()
        mine = torch.full((7,), float(job.rank + 1))
        blocks = [torch.zeros(7) for _ in range(job.world)]
        strided = torch.zeros(7, 2)[:, 0]
        strided.copy_(mine)
        late.hold(True)
        with cuda.using(late):
            first = (dist.all_gather(blocks, mine, async_op=True) if part == "list"
                     else dist.all_reduce(strided, dist.ReduceOp.MAX, async_op=True))
        undo = _released_by_waits(late)
        apart = dist.all_reduce(torch.ones(7), async_op=True)  # waits for nothing
        with cuda.using(quick):
            target = blocks[0] if part == "list" else strided
            second = dist.all_reduce(target, async_op=True)
        assert undo() == 1, part
        for work in (first, apart, second):
            work.wait()
        right = job.world * (1 if part == "list" else job.world)
        assert bool((target == right).all()), (part, target)
    job.checks += 1


def behind_begun_copies(job, cuda, Stream):
    """The same when the copies have been begun, and another stream waits for them."""
    engine = gradwire.torch.engine.Engine.current()
    engine.copies = gradwire.torch.order.Copies()
    beside, *memory = torch.zeros(20 * job.world, 7)
    memory = iter(memory)
    user, blocks = Stream(), [next(memory) for _ in range(job.world)]
    with cuda.using(user):
        dist.all_gather(blocks, torch.full((7,), 1.0))
    mark = "mark of %s" % cuda.sides[-2].cuda_stream
    for later, others in ((blocks[1], 0), (beside, 0), (blocks[1], 9), (beside, 0)):
        for _ in range(others):
            dist.all_gather([next(memory) for _ in blocks], torch.full((7,), 1.0))
        quick = Stream()
        with cuda.using(quick):
            work = dist.all_reduce(later, async_op=True)
        # Of the oldest of many it is only known what addresses they were between.
        assert quick.waits_for == ([mark] if later is blocks[1] else []), (
            quick.waits_for, others
        )
        work.wait()
    job.checks += 1


def before_other_copies(job, cuda, Stream):
    """A call whose input the backend has to put in order first, of earlier calls' results."""
    for part in ("reduce_scatter", "strided", "all_to_all"):
        late, quick = Stream(), Stream()
        tensor = torch.full((8,), float(job.rank + 1))
        others = [torch.zeros(4) for _ in range(job.world)]
        out = torch.zeros(4)
        late.hold(True)
        with cuda.using(late):
            first = dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True)
        undo = _released_by_waits(late)
        with cuda.using(quick):
            given = [tensor[4:] for _ in range(job.world)]
            if part == "reduce_scatter":
                second = dist.reduce_scatter(out, given, async_op=True)
            elif part == "strided":
                out = tensor[::2]
                second = dist.all_reduce(out, async_op=True)
            else:
                second = dist.all_to_all(others, given, async_op=True)
                out = others[-1]
        assert undo() == 1, part
        for work in (first, second):
            work.wait()
        right = job.world * (1 if part == "all_to_all" else job.world)
        assert bool((out == right).all()), (part, out)
    # Blocks of several sizes: the process's own is put in its place at once, where an earlier call
    # writes, or reads; and from where one writes.
    for earlier in ("writes", "reads", "gives"):
        late, quick = Stream(), Stream()
        mine = torch.full((2 + job.rank,), 100.0 + job.rank)
        blocks = [torch.zeros(2 + rank) for rank in range(job.world)]
        whole, given = torch.zeros(8 * job.world), torch.full((8,), 5.0)
        if earlier == "gives":
            mine = whole[: 2 + job.rank]
        else:
            blocks[job.rank] = (whole if earlier == "writes" else given)[: 2 + job.rank]
        late.hold(True)
        with cuda.using(late):
            first = dist.all_gather_into_tensor(whole, given, async_op=True)
        undo = _released_by_waits(late)
        with cuda.using(quick):
            second = dist.all_gather(blocks, mine, async_op=True)
        assert undo() == 1, earlier
        for work in (first, second):
            work.wait()
        right = [5.0 if earlier == "gives" else 100.0 + rank for rank in range(job.world)]
        assert all(bool((t == value).all()) for t, value in zip(blocks, right)), blocks
        assert bool((whole[2 + job.rank if earlier == "writes" else 0 :] == 5).all()), whole
    # What the backend will copy comes after another group's call too.
    for part in ("all_gather", "all_to_all", "gather", "recv"):
        late, quick = Stream(), Stream()
        whole, mine = torch.zeros(4, 2 * job.world), torch.full((4,), 100.0 + job.rank)
        rows = [torch.zeros(4) for _ in range(job.world)]
        rows[0] = whole.view(-1)[:4]
        works = []
        late.hold(True)
        with cuda.using(late):
            given = torch.full((8,), 5.0)
            first = dist.all_gather_into_tensor(whole.view(-1), given, group=job.others,
                                                async_op=True)
        undo = _released_by_waits(late)
        with cuda.using(quick):
            if part == "all_gather":
                works.append(dist.all_gather(rows, mine, async_op=True))
            elif part == "all_to_all":
                inputs = [mine for _ in range(job.world)]
                works.append(dist.all_to_all(rows, inputs, async_op=True))
            elif part == "gather":
                works.append(dist.gather(mine, rows if job.rank == 0 else None, async_op=True))
            else:
                right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
                works.append(dist.irecv(whole[:, 1], left))
                works.append(dist.isend(mine, right))
        assert undo() == (0 if part == "gather" and job.rank != 0 else 1), part
        for work in (first, *works):
            work.wait()
        if part == "recv":
            assert bool((whole[:, 1] == 100.0 + left).all()) and whole[0, 0] == 5, whole
        elif part != "gather" or job.rank == 0:
            assert bool((rows[0] == 100.0).all()), (part, rows)
    # A call's own ops are not waited for: this ends, with whatever result.
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    group.allreduce_coalesced([tensor, tensor[::2]], dist.AllreduceCoalescedOptions()).wait()
    job.checks += 1


def ended_meanwhile(job, cuda, Stream):
    """A call is refused for another's memory, and that one ends before anybody looks."""
    late, quick = Stream(), Stream()
    tensor = torch.full((9,), 1.0)
    late.hold(True)
    with cuda.using(late):
        first = dist.all_reduce(tensor, group=job.others, async_op=True)
    channel, refused = gradwire.torch.channel, []
    real = channel.lib

    class Lib:
        def __getattr__(self, name):
            return getattr(real, name)

        def gw_post(self, *arguments):
            status = real.gw_post(*arguments)
            if status == Status.BUSY and not refused:
                refused.append(status)
                late.hold(False)
                first.wait()
            return status

    channel.lib = Lib()
    try:
        with cuda.using(quick):
            second = dist.all_reduce(tensor, async_op=True)
    finally:
        channel.lib = real
    second.wait()
    assert refused
    assert bool((tensor == job.world ** 2).all()), tensor
    job.checks += 1


def behind_what_waits(job, cuda, Stream):
    """A call of another group, and one that is another channel's, on memory of a call that is not
    posted yet."""
    late, quick = Stream(), Stream()
    busy, tensor = torch.full((9,), 1.0), torch.full((9,), 1.0)
    blocks = torch.zeros(9 * job.world)
    spread = torch.zeros(9 * job.world)
    late.hold(True)
    with cuda.using(late):
        works = [dist.all_reduce(busy, async_op=True)]
    with cuda.using(quick):
        works.append(dist.all_reduce(busy, async_op=True))  # waits, and the next behind it
        works.append(dist.all_reduce(tensor, async_op=True))
        works.append(dist.all_gather_into_tensor(blocks, tensor, group=job.others, async_op=True))
        works.append(dist.all_to_all_single(spread, blocks, async_op=True))
        # Those of other memory wait for nothing.
        apart = torch.full((9,), 1.0)
        dist.all_reduce(apart, group=job.apart)
    assert apart[0] == job.world and not any(work.is_completed() for work in works)
    late.hold(False)
    for work in reversed(works):
        work.wait()
    assert bool((blocks == job.world).all()) and bool((spread == job.world).all()), (blocks, spread)
    job.checks += 1


def columns(job, cuda, Stream):
    """Columns of one matrix have nothing in common."""
    late, quick = Stream(), Stream()
    matrix = torch.ones(6, 8)
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    matrix[:, 0] = job.rank
    # Each waits to receive before it sends.
    with cuda.using(quick):
        works = [dist.irecv(matrix[:, 7], left), dist.isend(matrix[:, 0], right)]
    for work in works:
        work.wait()
    assert bool((matrix[:, 7] == left).all()), matrix
    span = gradwire.torch.order.Span
    whole = torch.zeros(4, 6, 10)
    for some, others, meet in (
        (whole[:, :, :5], whole[:, :, 5:], False), (whole[:, :, :6], whole[:, :, 5:], True),
        (whole[:, 2], whole[:, 3], False), (whole[:, 2], whole[:, 2:4], True),
        (whole[1], whole[2], False), (whole[1:3], whole[2], True), (whole[1], whole[:, 2], True),
        (whole[:, :, 0], whole[:, :, 9], False), (whole[:, :, 9], whole[1:, 0, :3], False),
        (whole, whole[3, 5, 9:], True), (whole[:0], whole, False),
    ):
        assert span(some).meets(span(others)) == span(others).meets(span(some)) == meet, (
            some.shape, others.shape
        )
    job.checks += 1


def halo(job, cuda, Stream):
    """Faces of a grid, which have nothing in common: no call waits for what another process sends
    only after it. Nor does it if it cannot be told within reason whether they have."""
    order = gradwire.torch.order
    group = dist.new_group(timeout=datetime.timedelta(seconds=20))
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    most = order._MOST_TRIES
    for tries in (most, 0):
        for sends_first in (False, True):
            flat, solid = torch.full((6, 6), job.rank + 0.5), torch.full((6, 6, 6), job.rank + 0.5)
            inner = slice(1, -1)
            for received, sent in (
                ([flat[inner, 0]], [flat[1, inner]]), ([flat[0, inner]], [flat[inner, 1]]),
                ([solid[inner, inner, 0], solid[inner, inner, -1]],
                 [solid[1, inner, inner], solid[inner, inner, 1]]),
            ):
                calls = [lambda t=t: dist.irecv(t, left, group=group) for t in received]
                sends = [lambda t=t: dist.isend(t, right, group=group) for t in sent]
                order._MOST_TRIES = tries
                try:
                    works = [call() for call in (sends + calls if sends_first else calls + sends)]
                finally:
                    order._MOST_TRIES = most
                for work in works:
                    work.wait()
                assert all(bool((t == left + 0.5).all()) for t in received), received
                assert all(bool((t == job.rank + 0.5).all()) for t in sent), sent
    # One that has something in common waits, and says for what.
    if job.rank == 0:
        group._get_backend(torch.device("cuda")).set_timeout(datetime.timedelta(seconds=0.3))
        late = Stream()
        late.hold(True)
        with cuda.using(late):
            dist.isend(flat[1], right, group=group)
        job.fails("TIMED_OUT", ["a later call waited for this one", "memory may overlap",
                                "rank 0: send of float32[6] (to 1"],
                  lambda: dist.irecv(flat[:, 1], left, group=group))
        late.hold(False)
    dist.barrier()
    dist.destroy_process_group(group)
    job.checks += 1


def in_a_callback(job, cuda, Stream):
    """A future's callback makes calls that have to come after others: they wait in the callback's
    thread, and other futures end meanwhile."""
    late, quick, ended = Stream(), Stream(), threading.Event()
    blocks, tensor = [torch.zeros(7) for _ in range(job.world)], torch.full((8,), 1.0)
    errors = []

    def called(_):
        try:
            dist.all_reduce(blocks[0], group=job.apart)
            dist.all_reduce(tensor[::2], group=job.apart)
        except BaseException as error:
            errors.append(error)
        ended.set()

    late.hold(True)
    quick.hold(True)
    with cuda.using(late):
        works = [dist.all_gather(blocks, torch.full((7,), 1.0), async_op=True),
                 dist.all_reduce(tensor, async_op=True)]
    with cuda.using(quick):
        first, second = [dist.all_reduce(torch.ones(3), group=job.apart, async_op=True)
                         for _ in range(2)]
    first.get_future().then(called)
    future = second.get_future()
    quick.hold(False)
    future.wait()
    assert not ended.is_set(), errors
    late.hold(False)
    for work in works:
        work.wait()
    assert ended.wait(20) and not errors, errors
    assert blocks[0][6] == job.world and tensor[0] == job.world ** 2 and tensor[1] == job.world
    job.checks += 1
