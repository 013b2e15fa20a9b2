# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that makes each kind of call rightly and wrongly, on gradwire and on Gloo.
What Gloo does gradwire does too: the same result, or an error before anything is posted, after
which the group goes on; and nothing beyond a tensor's end is written."""
import datetime
import sys

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import _functional_collectives as functional

import gradwire.torch
from gradwire import GradwireError

EDGE = 512


class Job:
    def __init__(self):
        dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=60))
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.ours, self.gloo = dist.group.WORLD, dist.new_group(backend="gloo")
        self.checks = 0
        self.named = 0  # errors that are the backend's own

    def total(self):
        return float(self.world * (self.world + 1) // 2)

    def outcome(self, call, group):
        try:
            return call(group)
        except (RuntimeError, ValueError, TypeError):
            return "refused"

    def same(self, name, call):
        """``call(group)`` has the same outcome on both."""
        ours, right = self.outcome(call, self.ours), self.outcome(call, self.gloo)
        if not _equal(ours, right):
            raise AssertionError("%s: %s, Gloo: %s" % (name, ours, right))
        self.checks += 1

    def refused(self, name, call):
        """It raises an error at once, torch's own or one that names the group, and nothing was
        posted."""
        whole = torch.full((2 * EDGE + 64,), -7.0)
        inner = whole[EDGE:EDGE + 64]
        try:
            call(self.ours, inner)
        except (ValueError, RuntimeError, TypeError) as error:
            if isinstance(error, GradwireError):
                raise AssertionError("%s: %s" % (name, error)) from error
            self.named += "in process group 0: " in str(error)
        else:
            raise AssertionError("%s was taken" % name)
        assert bool((whole == -7.0).all()), "%s wrote beyond a tensor, or into it" % name
        self.goes_on(name)

    def goes_on(self, name):
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [float(self.world)] * 3, name
        self.checks += 1


def _equal(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b))
    return type(a) is type(b) and a == b


def options(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


# ---- all_to_all_single, as a layer of experts calls it

def experts(job):
    """sends[r][s]: rows from process r to process s. Some get nothing, some send nothing."""
    rank, world = job.rank, job.world
    none, all_to_0 = [[0] * world] * world, [[r + 2] + [0] * (world - 1) for r in range(world)]
    first_is_idle = [[0] * world] + [[r + s for s in range(world)] for r in range(1, world)]
    last_gets_none = [[r + 1] * (world - 1) + [0] for r in range(world)]
    for sends in (none, all_to_0, first_is_idle, last_gets_none):
        for shape, dtype in (((8,), torch.float32), ((), torch.float32), ((4, 5), torch.float32),
                             ((16,), torch.bfloat16)):
            given, got = sends[rank], [sends[r][rank] for r in range(world)]

            def call(group):
                source = torch.full((sum(given), *shape), rank + 1.0).to(dtype)
                out = torch.zeros((sum(got), *shape), dtype=dtype)
                dist.all_to_all_single(out, source, got, given, group=group)
                right = [torch.full((n, *shape), r + 1.0).to(dtype) for r, n in enumerate(got)]
                assert torch.equal(out, torch.cat(right))
                return out

            job.same("all_to_all_single of %s" % sends, call)

    def backward(group):
        given, got = first_is_idle[rank], [first_is_idle[r][rank] for r in range(world)]
        source = torch.full((sum(given), 8), rank + 1.0, requires_grad=True)
        out = functional.all_to_all_single_autograd(source, got, given, group)
        out.sum().backward()
        return [out.detach(), source.grad]

    job.same("all_to_all_single_autograd", backward)


# ---- sizes, splits and types

def sizes(job):
    world, rank = job.world, job.rank
    ones, other = [1] * world, (job.rank + 1) % job.world
    f = torch.ones
    cases = {
        "a small output": lambda g, t: dist.all_to_all_single(t[:world], f(4 * world)),
        "a large output": lambda g, t: dist.all_to_all_single(t[:4 * world], f(world)),
        "narrow rows": lambda g, t: dist.all_to_all_single(
            t[:2 * world].view(world, 2), f(world, 8), ones, ones),
        "rows that cannot be cut": lambda g, t: dist.all_to_all_single(
            t[:2 * world + 2].view(world + 1, 2), f(world + 1, 2)),
        "a split too few": lambda g, t: dist.all_to_all_single(
            t[:world], f(world), ones[1:], ones),
        "a split below 0": lambda g, t: dist.all_to_all_single(
            t[:world], f(world), [world + 1, -1] + [0] * (world - 2), ones),
        "splits of more": lambda g, t: dist.all_to_all_single(t[:world], f(world), ones,
                                                              [2] * world),
        "another type": lambda g, t: g.alltoall_base(t[:world], f(world).double(), [], [],
                                                     c10d.AllToAllOptions()),
        "a list's own block": lambda g, t: g.alltoall(
            [t[:1]] * world, [f(5)] * world, c10d.AllToAllOptions()),
        "a list's types": lambda g, t: g.alltoall(
            [t[:1]] * world, [f(1).int()] * world, c10d.AllToAllOptions()),
        "reduce_scatter": lambda g, t: dist.reduce_scatter(t[:1], [f(5)] * world),
        "reduce_scatter, others fit": lambda g, t: dist.reduce_scatter(
            t[:1], [f(5 if r == rank else 1) for r in range(world)]),
        "reduce_scatter's types": lambda g, t: g.reduce_scatter(
            [t[:1]], [[f(1).double()] * world], c10d.ReduceScatterOptions()),
        "reduce_scatter_tensor": lambda g, t: dist.reduce_scatter_tensor(t[:1], f(5 * world)),
        "all_gather": lambda g, t: dist.all_gather(list(t[:2 * world].view(world, 2)), f(4)),
        "all_gather's types": lambda g, t: g.allgather(
            [list(t[:4 * world].view(world, 4))], [f(4).int()]),
        "all_gather_into_tensor": lambda g, t: dist.all_gather_into_tensor(t[:5], f(4)),
        "lists of one more output": lambda g, t: g._get_backend(
            t.device).all_gather_single_coalesced(
                [t[:world], t[:world]], [f(1)], c10d.AllgatherOptions()),
        "gather": lambda g, t: g.gather(
            [list(t[:2 * world].view(world, 2))] if rank == 0 else [[]], [f(4)],
            options(c10d.GatherOptions, rootRank=0)),
        "scatter": lambda g, t: g.scatter(
            [t[:2]], [[f(4)] * world] if rank == 0 else [[]],
            options(c10d.ScatterOptions, rootRank=0)),
        "a tag below 0": lambda g, t: g.recv([t[:1]], other, -3),
        "a receive from nobody": lambda g, t: g.recv([t[:1]], world, 0),
    }
    before = job.named
    for name, call in cases.items():
        job.refused(name, call)
    assert job.named - before == len(cases), "%d of %d" % (job.named - before, len(cases))


def roots_and_lists(job):
    """Gloo's own checks, in the words of PyTorch's test_c10d_gloo.py."""
    w, r, gl = job.world, job.rank, job.gloo
    one, double, two = torch.zeros(1), torch.zeros(1).double(), torch.zeros(2)

    def broadcast(g, tensors, **values):
        g.broadcast(tensors, options(c10d.BroadcastOptions, **values))

    def reduce(g, tensors, **values):
        g.reduce(tensors, options(c10d.ReduceOptions, **values))

    def scatter(g, outputs, inputs, root):
        g.scatter(outputs, inputs, options(c10d.ScatterOptions, rootRank=root))

    def gather(g, outputs, inputs, root):
        g.gather(outputs, inputs, options(c10d.GatherOptions, rootRank=root))

    nobody = ((-1, "root -1"), (w, "root %d" % w))
    for root, name in nobody:
        job.refused(name, lambda g, t: broadcast(g, [one], rootRank=root))
        job.refused(name, lambda g, t: reduce(g, [one], rootRank=root))
        job.refused(name, lambda g, t: scatter(g, [one], [], root))
        job.refused(name, lambda g, t: gather(g, [], [one], root))
    for number in (-1, 1):
        job.refused("rootTensor", lambda g, t: broadcast(g, [one], rootRank=r, rootTensor=number))
        job.refused("rootTensor", lambda g, t: reduce(g, [one], rootRank=r, rootTensor=number))
    for tensors in ([], [one, double], [one, two]):
        job.refused("tensors", lambda g, t: broadcast(g, tensors, rootRank=r))
        job.refused("tensors", lambda g, t: g.allreduce(tensors, c10d.AllreduceOptions()))
    job.refused("nothing", lambda g, t: g.allreduce_coalesced(
        [], c10d.AllreduceCoalescedOptions()))
    for outputs, inputs in (([], []), ([one, one], []), ([one], []), ([one], [[one] * w] * 2),
                            ([one], [[one] * (w - 1)]), ([one], [[one] * (w + 1)]),
                            ([one], [[double] * w]), ([one], [[two] * w])):
        job.refused("scatter", lambda g, t: scatter(g, outputs, inputs, r))
        job.refused("gather", lambda g, t: gather(g, inputs, outputs, r))
    job.refused("scatter", lambda g, t: scatter(g, [one], [[one] * w], (r + 1) % w))
    job.refused("gather", lambda g, t: gather(g, [[one] * w], [one], (r + 1) % w))
    for outputs, inputs in (([], []), ([], [one]), ([[one] * w] * 2, [one]),
                            ([[one] * (w - 1)], [one]), ([[one] * (w + 1)], [one]),
                            ([([one, double] * w)[:w]], [one])):
        job.refused("allgather", lambda g, t: g.allgather(outputs, inputs))
    assert job.outcome(lambda g: broadcast(g, [one], rootRank=-1), gl) == "refused"


# ---- one place of memory in several tensors of a call

def shared_memory(job):
    world, rank = job.world, job.rank

    def coalesced(cut):
        def call(group):
            memory = torch.arange(24.0) * (rank + 1)
            dist.all_reduce_coalesced(cut(memory), group=group)
            return memory

        job.same("all_reduce_coalesced of tensors that share memory", call)

    coalesced(lambda t: [t, t])
    coalesced(lambda t: [t[:16], t[8:]])
    coalesced(lambda t: [t.view(4, 6).t(), t, t[3:4]])
    coalesced(lambda t: [t[::2], t[1::2]])  # nothing in common

    # Gloo writes four elements of memory for each of these.
    base = torch.ones(3, 1)
    dist.all_reduce(base.expand(3, 4))
    assert base.tolist() == [[float(world)]] * 3

    def in_place_coalesced(group):
        # The second's input is the first's output: all are read before one is written.
        first, second = torch.zeros(world), torch.zeros(world * world)
        with dist._coalescing_manager(group=group):
            dist.all_gather_into_tensor(first, torch.full((1,), rank + 1.0), group=group)
            dist.all_gather_into_tensor(second, first, group=group)
        return first, second

    first, second = in_place_coalesced(job.ours)
    assert first.tolist() == [r + 1.0 for r in range(world)] and not bool(second.any())
    # An all-gather of blocks of several sizes, whose input is where another's block will be.
    memory = torch.full((8 * world,), float(rank))
    blocks = [memory[8 * r:8 * r + 3 + r] for r in range(world)]
    other = (rank + 1) % world
    source = memory[8 * other:8 * other + 3 + rank]
    dist.all_gather(blocks, source)
    assert all(bool((block == r).all()) for r, block in enumerate(blocks)), blocks
    # A reduce-scatter of such blocks, into a place that is read for another process's.
    inputs = [torch.full((3 + r,), rank + 1.0) for r in range(world)]
    if rank + 1 < world:
        inputs[rank + 1] = torch.full((16,), rank + 1.0)[:4 + rank]
    out = inputs[(rank + 1) % world][:3 + rank] if rank + 1 < world else torch.zeros(3 + rank)
    dist.reduce_scatter(out, inputs)
    assert bool((out == job.total()).all()), out
    job.checks += 3


def reductions(job):
    def xor(group):
        tensor = torch.tensor([True, False, job.rank == 0, job.rank == 1])
        dist.all_reduce(tensor, dist.ReduceOp.BXOR, group=group)
        return tensor

    job.same("bxor of bool", xor)
    # Where one of a coalesced call cannot be reduced, none is.
    tensors = [torch.ones(3), torch.ones(3, dtype=torch.float8_e4m3fn)]
    for group in (job.ours, job.gloo):
        assert job.outcome(lambda g: g.allreduce_coalesced(
            tensors, c10d.AllreduceCoalescedOptions()), group) == "refused"
        assert tensors[0].tolist() == [1.0] * 3
    job.goes_on("a call of which a part is refused")
    # Also where there is nobody to reduce with.
    alone = [dist.new_group([rank]) for rank in range(job.world)][job.rank]
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        for group in (job.ours, job.gloo, alone):
            assert job.outcome(lambda g: dist.all_reduce(torch.ones(3), op, group=g),
                               group) == "refused"
    dist.destroy_process_group(alone)
    job.goes_on("bits of floats")


# ---- memory, where the daemon gives a client 96 MiB

def memory(job):
    """Lists of several sizes, one after the other, and then an all-reduce that fits alone."""
    for mb in (6, 10, 14, 18, 22):
        count = mb << 20
        outs = [torch.zeros(count // job.world, dtype=torch.uint8) for _ in range(job.world)]
        dist.all_gather(outs, torch.ones(count // job.world, dtype=torch.uint8))
        assert all(out[-1] == 1 for out in outs)
        del outs
    tensor = torch.ones(28 << 20, dtype=torch.uint8)
    for _ in range(2):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    assert bool((tensor == 1).all())
    # And the other way round: what the library keeps makes room for the pool.
    outs = [torch.zeros((50 << 20) // job.world, dtype=torch.uint8) for _ in range(job.world)]
    dist.all_gather(outs, torch.ones((50 << 20) // job.world, dtype=torch.uint8))
    assert all(out[-1] == 1 for out in outs)
    assert not gradwire.torch.stats()["slower"], gradwire.torch.stats()
    job.checks += 1


def run(*parts):
    """Each of the parts, or those that the command line names."""
    torch.set_num_threads(1)
    job = Job()
    for part in parts:
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            part(job)
    if job.rank == 0:
        print("%d processes, %d checks; %s" % (job.world, job.checks, gradwire.torch.stats()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run(experts, sizes, roots_and_lists, shared_memory, reductions, memory)
