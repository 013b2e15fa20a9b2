# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job whose tensors on the CPU pass for CUDA's: the tests' own libcuda.so.1 takes
all memory for the GPU's, and has the streams. Every collective beside Gloo's, then streams that are
late, in another order, and failing. The daemons' gradient memory is the host's."""
import contextlib
import ctypes
import datetime
import gc
import sys
import threading
import time
import weakref

import torch
import torch.distributed as dist

import gradwire.client
import gradwire.torch
import gradwire.torch.backend
import gradwire.torch.capture
import gradwire.torch.channel
import gradwire.torch.engine
import gradwire.torch.hook
import gradwire.torch.order
import gradwire.torch.work
from gradwire import GradwireError

import backend
import cuda_capture
import cuda_order

FAKE = ctypes.CDLL("libcuda.so.1")
FAKE.fake_cuda_new_stream.restype = ctypes.c_void_p
COPY_FAILS = 1


class Stream:
    """One of the library's, as far as torch's are asked for. What torch does is done at once."""

    def __init__(self):
        self.cuda_stream = FAKE.fake_cuda_new_stream()
        self.waits_for = []

    def hold(self, held):
        FAKE.fake_cuda_hold_stream(ctypes.c_void_p(self.cuda_stream), int(held))

    def capture(self):
        FAKE.fake_cuda_begin_capture(ctypes.c_void_p(self.cuda_stream))

    def end_capture(self):
        """Returns whether nothing has spoilt the graph."""
        return FAKE.fake_cuda_end_capture(ctypes.c_void_p(self.cuda_stream)) == 1

    def synchronize(self):
        FAKE.cuStreamSynchronize(ctypes.c_void_p(self.cuda_stream))

    def wait_event(self, event):
        self.waits_for.append(event)

    def record_event(self):
        return "mark of %s" % self.cuda_stream


class Cuda:
    """In the place of gradwire._cuda.TorchCuda."""

    def __init__(self):
        self.here = threading.local()
        self.plain = Stream()
        self.sides = []
        self.on_cpu = set()  # storages that do not pass for CUDA's
        self.kept = []  # addresses, and streams
        self.entered = []  # threads, and devices

    def holds(self, tensor):
        return tensor.data_ptr() not in self.on_cpu if tensor.layout is torch.strided else True

    def index_of(self, tensor):
        return 0

    def device_of(self, tensor):
        return "fake" if self.holds(tensor) else "cpu"

    def current_stream(self, device):
        return getattr(self.here, "stream", self.plain)

    def new_stream(self, device):
        self.sides.append(Stream())
        return self.sides[-1]

    @contextlib.contextmanager
    def using(self, stream):
        before = self.current_stream("fake")
        self.here.stream = stream
        try:
            yield
        finally:
            self.here.stream = before

    def is_capturing(self, device):
        status = ctypes.c_int()
        context = ctypes.c_void_p()
        FAKE.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        FAKE.cuCtxPushCurrent_v2(context)
        failed = FAKE.cuStreamIsCapturing(
            ctypes.c_void_p(self.current_stream(device).cuda_stream), ctypes.byref(status)
        )
        FAKE.cuCtxPopCurrent_v2(None)
        assert failed == 0, failed
        return status.value != 0

    def keep(self, tensor, stream):
        assert self.holds(tensor)
        self.kept.append((tensor.data_ptr(), stream))

    def enter(self, device):
        self.entered.append((threading.current_thread().name, device))

    def future(self, device):
        assert device == "fake"
        future = torch.futures.Future()
        set_result = future.set_result

        def noting(value):
            future.given_on = self.current_stream("fake")
            set_result(value)

        future.set_result = noting
        return future


CUDA = Cuda()
for module in (gradwire.client, gradwire.torch.hook, gradwire.torch.backend,
               gradwire.torch.capture, gradwire.torch.channel, gradwire.torch.engine,
               gradwire.torch.order, gradwire.torch.work):
    module.cuda = CUDA


def late_streams(job):
    """Nothing blocks Python, and what a stream was still to write is what is sent."""
    late, quick = Stream(), Stream()
    first, second, third = (torch.full((n,), float(job.rank)) for n in (1000, 3, 70_000))
    late.hold(True)
    began = time.monotonic()
    with CUDA.using(late):
        works = [dist.all_reduce(first, async_op=True)]
    with CUDA.using(quick):
        works.append(dist.all_reduce(second, async_op=True))
        works.append(dist.all_reduce(third, async_op=True))
    assert time.monotonic() - began < 1
    # Another group goes on, also where results are copied once more.
    other = torch.ones(5)
    dist.all_reduce(other, group=job.others)
    assert bool((other == job.world).all())
    lists = [[torch.zeros(3) for _ in range(job.world)] for _ in range(2)]
    with CUDA.using(late):
        works.append(dist.all_gather(lists[0], second, async_op=True))
    with CUDA.using(quick):
        dist.all_gather(lists[1], torch.full((3,), float(job.rank)), group=job.others)
    marks = CUDA.sides[-2].waits_for
    assert "mark of %s" % quick.cuda_stream in marks, marks
    assert "mark of %s" % late.cuda_stream not in marks, marks
    time.sleep(0.05)
    assert not any(work.is_completed() for work in works)
    first.fill_(10 + job.rank)
    late.hold(False)
    for work in reversed(works):
        work.wait()
    total = job.world * (job.world - 1) / 2
    assert bool((first == 10 * job.world + total).all()), first
    assert bool((second == total).all()) and bool((third == total).all())
    assert "mark of %s" % late.cuda_stream in marks
    assert all(bool((t == total).all()) for t in lists[0]), lists
    assert all(bool((t == rank).all()) for rank, t in enumerate(lists[1])), lists
    # Nobody waits, and the future tells.
    with CUDA.using(late):
        future = dist.all_reduce(first, async_op=True).get_future()
    assert future.wait()[0] is not None
    job.checks += 1


def waits_order_streams(job):
    """wait() returns before the result's copy has run, and a stream has it after that."""
    user = Stream()
    tensor = torch.full((100,), float(job.rank))
    with CUDA.using(user):
        work = dist.all_reduce(tensor, async_op=True)
        until = time.monotonic() + 20
        FAKE.fake_cuda_hold_streams(1)
        # The copy in has run already, or does not run: then it is let go once.
        try:
            work.wait(datetime.timedelta(seconds=0.3))
        except GradwireError as error:
            assert "CUDA stream" in str(error) or "still being copied" in str(error), error
            FAKE.fake_cuda_hold_streams(0)
            work.wait()
        user.synchronize()
    FAKE.fake_cuda_hold_streams(0)
    assert time.monotonic() < until
    assert bool((tensor == job.world * (job.world - 1) / 2).all())
    # Copies at the end are on the backend's side stream, which the caller's then waits for.
    blocks = [torch.zeros(7) for _ in range(job.world)]
    with CUDA.using(user):
        dist.all_gather(blocks, torch.full((7,), float(job.rank)))
    assert "mark of %s" % CUDA.sides[-2].cuda_stream in user.waits_for, user.waits_for
    assert all(bool((block == rank).all()) for rank, block in enumerate(blocks))
    assert (blocks[0].data_ptr(), CUDA.sides[-2]) in CUDA.kept
    job.checks += 1


def buffers(job):
    """The backend's own, which the side stream reads: made on the caller's stream, behind which the
    side stream is, also where nothing is moved; and kept until the side stream has read them."""
    alone = [dist.new_group([rank]) for rank in range(job.world)][job.rank]
    side, made = CUDA.sides[-2], []
    real = gradwire.torch.backend.torch.empty

    def empty(*arguments, **options):
        made.append(real(*arguments, **options))
        return made[-1]

    for group, world in ((None, job.world), (alone, 1)):
        for part in ("list", "strided"):
            blocks = [torch.zeros(7) for _ in range(world)]
            strided = torch.zeros(7, 2)[:, 0]
            mine = torch.full((7,), float(job.rank))
            user = Stream()
            gradwire.torch.backend.torch.empty = empty
            try:
                with CUDA.using(user):
                    if part == "list":
                        dist.all_gather(blocks, mine, group=group)
                    else:
                        strided.copy_(mine)
                        dist.all_reduce(strided, dist.ReduceOp.MAX, group=group)
            finally:
                gradwire.torch.backend.torch.empty = real
            last = job.world - 1 if world > 1 else job.rank
            assert (blocks[-1] if part == "list" else strided)[6] == last
            assert "mark of %s" % user.cuda_stream in side.waits_for, (world, part)
            assert (made[-1].data_ptr(), side) in CUDA.kept, (world, part)
    dist.destroy_process_group(alone)
    job.checks += 1


def coalesced(job):
    """A future of several calls is behind the copies of all of them."""
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    blocks, total = [torch.zeros(7) for _ in range(job.world)], torch.ones(3)
    group.start_coalescing()
    dist.all_gather(blocks, torch.full((7,), float(job.rank)), async_op=True)
    dist.all_reduce(total, async_op=True)
    work = group.end_coalescing()
    work.get_future().wait()
    assert work._future.given_on is CUDA.sides[-2]
    work.wait()
    assert total[2] == job.world and blocks[-1][6] == job.world - 1
    job.checks += 1


def futures(job):
    """A future's value is given on a stream that waits for the result of every op, whichever thread
    has seen it end; and the thread that tells of ends is one for this device."""
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    handle, ordered = gradwire.torch.channel.Handle, []
    real = handle.order

    def order(self, stream, timeout_s):
        ordered.append(stream)
        real(self, stream, timeout_s)

    tensors = [torch.full((n,), 1.0) for n in (5, 70_000)]
    handle.order = order
    try:
        work = group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions())
        work.get_future().wait()
        assert work._future.given_on is CUDA.sides[-1] and ordered == 2 * [CUDA.sides[-1]], ordered
        # The same of one that is asked for late.
        work = group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions())
        work.wait()
        ordered.clear()
        work.get_future().wait()
        assert work._future.given_on is CUDA.sides[-1] and ordered == 2 * [CUDA.sides[-1]], ordered
    finally:
        handle.order = real
    assert all(bool((t == job.world ** 2).all()) for t in tensors)
    assert set(CUDA.entered) == {("gradwire", "fake"), ("gradwire callbacks", "fake")}, CUDA.entered
    job.checks += 1


def nothing_is_left(job):
    """A tensor is let go of with its work, without the collector of cycles."""
    gc.collect()
    gc.disable()
    try:
        memory = (ctypes.c_char * 4000)()
        gone = weakref.ref(memory)
        tensor = torch.frombuffer(memory, dtype=torch.float32)
        del memory
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        del work, tensor
        until = time.monotonic() + 20
        while gone() is not None and time.monotonic() < until:  # the thread may have it in hand
            time.sleep(0.01)
        assert gone() is None, gc.get_referrers(gone())
    finally:
        gc.enable()
    job.checks += 1


def sends(job):
    """A late send holds back no recv and no collective."""
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    late, quick = Stream(), Stream()
    sent, got, total = torch.full((500,), -1.0), torch.zeros(500), torch.ones(4)
    late.hold(True)
    with CUDA.using(quick):
        works = [dist.irecv(got, left)]
    with CUDA.using(late):
        works.append(dist.isend(sent, right))
    with CUDA.using(quick):
        dist.all_reduce(total)
    assert bool((total == job.world).all())
    sent.fill_(float(job.rank))
    late.hold(False)
    for work in works:
        work.wait()
    assert bool((got == left).all()), got
    job.checks += 1


def both_devices(job):
    """Tensors on the CPU and on a GPU in one group, in one order."""
    ours, theirs = torch.full((9,), 1.0), torch.full((9,), 2.0)
    CUDA.on_cpu.add(theirs.data_ptr())
    works = [dist.all_reduce(t, async_op=True) for t in (ours, theirs)]
    for work in works:
        work.wait()
    assert bool((ours == job.world).all()) and bool((theirs == 2 * job.world).all())
    job.fails("UNSUPPORTED", ["one device"],
              lambda: dist.all_gather_into_tensor(torch.zeros(9 * job.world), theirs))
    CUDA.on_cpu.clear()


def failing(job):
    """The last: a stream that fails ends its group everywhere, by name."""
    late = Stream()
    tensor = torch.ones(11)
    if job.rank == 1:
        late.hold(True)
        with CUDA.using(late):
            work = dist.all_reduce(tensor, group=job.others, async_op=True)
        FAKE.fake_cuda_fail_next(COPY_FAILS)
        late.hold(False)
        job.fails("SYSTEM", ["rank 1: allreduce of float32[11]", "did not come from the GPU",
                             "CUDA_ERROR"], work.wait)
    else:
        job.fails("ABORTED", ["allreduce of float32[11]", "did not come from the GPU"],
                  lambda: dist.all_reduce(tensor, group=job.others))


def main():
    job = backend.Job()
    job.apart = dist.new_group()
    job.others = dist.new_group(timeout=datetime.timedelta(hours=2))
    ours = dist.distributed_c10d._get_default_group()
    assert ours._get_backend(torch.device("cuda")) is not None, "no backend for cuda"
    for part in (backend.reductions, backend.moves, backend.scatters, backend.many, backend.groups,
                 backend.in_another_order, backend.one_and_all, backend.all_to_all, backend.to_one,
                 late_streams, waits_order_streams, buffers, coalesced, futures, nothing_is_left,
                 sends, both_devices, *cuda_order.parts(CUDA, Stream),
                 *cuda_capture.parts(CUDA, Stream), backend.destroyed_with_a_queue,
                 backend.mistakes, failing):
        part(job)
    if job.rank == 0:
        print("%d processes, %d comparisons; %s" % (job.world, job.checks, gradwire.torch.stats()))
    dist.barrier()
    dist.destroy_process_group()
    assert gradwire.torch.stats() == {}


if __name__ == "__main__":
    sys.exit(main())
