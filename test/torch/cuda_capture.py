# SPDX-License-Identifier: BSD-3-Clause
"""Parts of cuda_tensors.py: streams that are captured into a CUDA graph."""
import torch
import torch.distributed as dist


def parts(cuda, stream_class):
    """The parts, for the stand-ins of torch.cuda and of its streams."""
    return [
        lambda job, part=part: part(job, cuda, stream_class)
        for part in (captured, while_another_captures)
    ]


def captured(job, cuda, Stream):
    """A call on a stream that is captured, and a wait."""
    graph, quick = Stream(), Stream()
    tensor, strided = torch.full((9,), 1.0), torch.ones(9, 2)[:, 0]
    with cuda.using(quick):
        work = dist.all_reduce(tensor, async_op=True)
    words = ["captured into a CUDA graph", "before or after the capture"]
    graph.capture()
    with cuda.using(graph):
        for call in (lambda: dist.all_reduce(tensor), lambda: dist.all_reduce(strided),
                     lambda: dist.isend(tensor, (job.rank + 1) % job.world)):
            job.fails("UNSUPPORTED", [*words, "process group"], call)
        job.fails("UNSUPPORTED", [*words, "allreduce of float32[9]", "it goes on"], work.wait)
    assert graph.end_capture()
    with cuda.using(graph):
        work.wait()
        dist.all_reduce(tensor)
    assert bool((tensor == job.world ** 2).all()), tensor
    job.checks += 1


def while_another_captures(job, cuda, Stream):
    """Calls on other streams go on, by way of the thread that tells of their ends, and spoil no
    capture."""
    graph, late, quick = Stream(), Stream(), Stream()
    first, second = torch.full((11,), 1.0), torch.full((600_000,), 1.0)
    graph.capture()
    late.hold(True)
    with cuda.using(late):
        work = dist.all_reduce(first, async_op=True)
        future = work.get_future()
    with cuda.using(quick):
        dist.all_reduce(second, group=job.others)
        late.hold(False)
        future.wait()
    assert graph.end_capture()
    assert bool((first == job.world).all()) and bool((second == job.world).all())
    job.checks += 1
