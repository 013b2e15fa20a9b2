# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that looks at how calls end, on gradwire and on Gloo: results after a
barrier, the caller's modes, callbacks that make calls and wait, and what works tell."""
import datetime

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import _functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from calls import run


def barriers(job):
    """Nobody waits for the call, and its result is there after the barrier."""
    for count in (4, 1000, 100_000):
        for _ in range(5):
            tensor, column = torch.full((count,), job.rank + 1.0), torch.zeros(2, job.world)
            dist.all_reduce(tensor, async_op=True)
            dist.all_gather(list(column.t()), torch.full((2,), job.rank + 1.0), async_op=True)
            dist.barrier()
            assert bool((tensor == job.total()).all()), "the result came after the barrier"
            assert column.sum() == 2 * job.total()
    # A receive that the other's send after the barrier ends does not hold up the barrier.
    got = torch.zeros(1)
    work = dist.irecv(got, (job.rank - 1) % job.world)
    dist.barrier()
    dist.send(torch.full((1,), float(job.rank)), (job.rank + 1) % job.world)
    work.wait()
    assert got.item() == (job.rank - 1) % job.world
    job.checks += 1


class Refuses(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise AssertionError("%s was seen by a mode that did not hold at the call" % function)


def modes(job):
    """What is copied back is copied as the caller had it, whoever finds out that the op ended."""
    right = torch.full((64, 64), float(job.world))
    with torch.inference_mode():
        for count in range(20):
            large = torch.ones(1 << 19)  # the backend's thread tells of this one
            work = dist.all_reduce(large, async_op=True)
            table = torch.ones(64, 64)
            dist.all_reduce(table.t())
            outs = [torch.zeros(3, 2).t() for _ in range(job.world)]
            dist.all_gather(outs, torch.ones(2, 3))
            work.wait()
            assert torch.equal(table, right) and all(bool(out.all()) for out in outs)
        made_there = torch.ones(64, 64)
    dist.all_reduce(made_there.t())  # outside: Gloo writes to it all the same
    assert torch.equal(made_there, right)
    table, outside = torch.ones(64, 64), torch.ones(64, 64, requires_grad=True)
    works = [dist.all_reduce(t.t(), async_op=True) for t in (table, outside)]
    with torch.inference_mode(), torch.device("meta"), Refuses():
        for work in works:
            work.wait()
    assert torch.equal(table, right) and torch.equal(outside.detach(), right)
    assert table.is_contiguous() and not table.is_inference()
    # And the caller's own hold afterwards, also of who copied before the call.
    parts = [torch.ones(3) for _ in range(job.world)] if job.rank == 0 else None
    dist.scatter(torch.zeros(3), parts)
    assert not torch._C._dispatch_tls_is_dispatch_key_excluded("Python")
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    try:
        with Refuses():
            table.add_(1)
    except AssertionError:
        job.checks += 1
        return
    raise AssertionError("a dispatch mode of the caller's sees nothing any more")


# ---- callbacks and futures

def callbacks(job):
    def chain(group):
        """Each of its callbacks makes a call and waits for it, as DDP's hooks do."""
        def by_work(finished):
            tensor = finished.value()[0]
            dist.all_reduce(tensor, group=group)
            return [tensor]

        def by_future(finished):
            work = dist.all_reduce(finished.value()[0], group=group, async_op=True)
            return work.get_future().wait()

        first = dist.all_reduce(torch.ones(8), group=group, async_op=True).get_future()
        return first.then(by_future).then(by_work).then(by_future).wait()[0]

    job.same("callbacks that wait", chain)
    # As many at once as there are futures: each waits for the one after it.
    works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(20)]
    futures = [work.get_future() for work in works]
    ends = [futures[-1]]
    for future in reversed(futures[:-1]):
        ends.append(future.then(lambda f, later=ends[-1]: [f.value()[0] + later.wait()[0]]))
    assert ends[-1].wait()[0].tolist() == [20.0 * job.world] * 2
    job.checks += 1


def callbacks_and_timeouts(job):
    """A callback that waits for what never comes: timeouts are seen to, and other futures end."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    seen = []

    def wait(finished):
        if job.rank == 0:
            work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
            try:
                work.get_future().wait()
            except RuntimeError as error:
                seen.append(str(error))

    waits = dist.all_reduce(torch.ones(8), async_op=True).get_future().then(wait)
    futures = [dist.all_reduce(torch.ones(2), async_op=True).get_future() for _ in range(5)]
    assert all(future.wait()[0].tolist() == [float(job.world)] * 2 for future in futures)
    waits.wait()
    assert job.rank != 0 or "reached its timeout of 2.0 s" in seen[0], seen
    dist.barrier()
    dist.destroy_process_group(group)
    job.checks += 1


def hooks(job):
    """DDP with hooks whose callbacks make calls: the same model as on Gloo."""
    def train(group, register):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(),
                                    torch.nn.Linear(64, 8))
        model = DistributedDataParallel(model, process_group=group)
        register(model, group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(job.rank)
        for _ in range(5):
            loss = (model(torch.randn(8, 16, generator=generator)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    def power(group):
        return powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1,
                                           start_powerSGD_iter=2)

    for name, register in {
        "powerSGD_hook": lambda model, group: model.register_comm_hook(
            power(group), powerSGD_hook.powerSGD_hook),
        "fp16 and powerSGD_hook": lambda model, group: model.register_comm_hook(
            power(group), default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
        "quantization_pertensor_hook": lambda model, group: model.register_comm_hook(
            group, quantization_hooks.quantization_pertensor_hook),
        "built-in fp16": lambda model, group: model._register_builtin_comm_hook(
            dist.BuiltinCommHookType.FP16_COMPRESS),
        "built-in": lambda model, group: model._register_builtin_comm_hook(
            dist.BuiltinCommHookType.ALLREDUCE),
    }.items():
        ours, right = train(job.ours, register), train(job.gloo, register)
        assert torch.allclose(ours, right, atol=2e-3), "%s: %s" % (name, (ours - right).abs().max())
        job.checks += 1


# ---- works

def works(job):
    def told(group):
        before = group._get_sequence_number_for_group()
        work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
        work.wait()
        number = work._get_sequence_number() - before
        result = work.result()
        return number, result, work.is_completed(), work.is_success()

    job.same("what a work tells", told)

    def source(group):
        got = torch.zeros(1)
        work = dist.irecv(got, (job.rank - 1) % job.world, group=group)
        dist.send(torch.ones(1), (job.rank + 1) % job.world, group=group)
        work.wait()
        return work._source_rank(), work.is_completed()

    job.same("where a receive is from", source)

    def registered(group):
        with functional.allow_inflight_collective_as_graph_input_ctx():
            before = c10d._get_work_registry_size()
            for _ in range(3):
                dist.all_reduce(torch.ones(1000), group=group, async_op=True).wait()
                dist.all_gather_into_tensor(torch.zeros(job.world), torch.ones(1), group=group,
                                            async_op=True).wait()
            return c10d._get_work_registry_size() - before

    job.same("works that stay registered", registered)


if __name__ == "__main__":
    run(barriers, modes, callbacks, callbacks_and_timeouts, hooks, works)
