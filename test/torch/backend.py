# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that does every collective of the backend and compares with Gloo's result
(whole numbers, so that every order of summation has the same bits)."""
import datetime
import sys

import torch
import torch.distributed as dist

import gradwire.torch
from gradwire import GradwireError
from unfinished import destroyed_with_a_queue, not_waited_for, others_go_on

DATATYPES = [
    torch.bool, torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64,
]
REDOPS = [dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]


class Job:
    device = torch.device("cpu")

    def __init__(self):
        dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=60))
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.gloo = dist.new_group(backend="gloo")
        self.checks = 0

    def inputs(self, dtype, count, seed=0, rank=None):
        """What this process has to give, or another."""
        rank = self.rank if rank is None else rank
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        numbers = torch.randint(0, 3, (count,), generator=generator, device="cpu")
        return numbers.to(self.device, dtype)

    def same(self, call, *tensors):
        """``call(group, *tensors)`` on gradwire and on Gloo leaves the same in all tensors."""
        ours = [t.clone(memory_format=torch.preserve_format) for t in tensors]
        theirs = [t.clone() for t in tensors]
        call(None, *ours)
        call(self.gloo, *theirs)
        for mine, right in zip(ours, theirs):
            if not torch.equal(mine, right):
                raise AssertionError("%s, Gloo has %s" % (mine, right))
        self.checks += 1

    def fails(self, code, words, call):
        """It raises GradwireError with these words."""
        try:
            call()
        except GradwireError as error:
            text = str(error)
            assert error.code.name == code and all(word in text for word in words), text
            self.checks += 1
            return
        raise AssertionError("nothing was raised")


def reductions(job):
    for dtype in DATATYPES:
        for op in REDOPS:
            tensor = job.inputs(dtype, 1001)
            if dtype == torch.bool:
                # Gloo adds bytes: what counts is whether it is true.
                out = tensor.clone()
                dist.all_reduce(out, op)
                right = tensor.to(torch.uint8)
                dist.all_reduce(right, op, group=job.gloo)
                assert torch.equal(out, right.bool())
                assert out.view(torch.uint8).max() <= 1
                continue
            job.same(lambda g, t, op=op: dist.all_reduce(t, op, group=g), tensor)
            root = job.world - 1

            def reduce(group, t, op=op):
                dist.reduce(t, root, op, group=group)
                if job.rank != root:
                    t.zero_()  # Gloo leaves parts of sums there

            job.same(reduce, tensor)
    tensor = torch.complex(job.inputs(torch.float32, 9), job.inputs(torch.float32, 9, 1))
    out = tensor.clone()
    dist.all_reduce(out)
    parts = torch.view_as_real(tensor).clone()
    dist.all_reduce(parts, group=job.gloo)
    assert torch.equal(torch.view_as_real(out), parts)
    out = torch.full((5,), float(job.rank))
    dist.all_reduce(out, dist.ReduceOp.AVG)
    assert torch.equal(out, torch.full((5,), (job.world - 1) / 2))
    premul_sums(job)
    columns = job.inputs(torch.float32, 24).view(4, 6).t()  # not contiguous
    out = columns.clone(memory_format=torch.preserve_format)
    dist.all_reduce(out)
    right = columns.contiguous()
    dist.all_reduce(right, group=job.gloo)
    assert torch.equal(out, right)


def premul_sums(job):
    """Each process has its own factor. Powers of two, so that every order has the same bits."""
    factors = [2.0 ** (rank % 3 - 1) for rank in range(job.world)]
    op = dist._make_nccl_premul_sum(factors[job.rank])
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
        given = job.inputs(torch.float32, 64 * job.world).to(dtype)
        right = given * factors[job.rank]
        right = torch.view_as_real(right) if dtype.is_complex else right.double()
        dist.all_reduce(right, group=job.gloo)
        right = torch.view_as_complex(right) if dtype.is_complex else right.to(dtype)
        out = given.clone()
        dist.all_reduce(out, op)
        assert torch.equal(out, right), (dtype, out, right)
        out = given.clone()
        dist.reduce(out, 0, op)
        assert torch.equal(out, right if job.rank == 0 else given)
        out = torch.empty(64, dtype=dtype)
        dist.reduce_scatter_tensor(out, given, op)
        assert torch.equal(out, right[64 * job.rank:64 * (job.rank + 1)])
        job.checks += 3
    # A factor in a tensor, and what is refused.
    out = torch.ones(3)
    dist.all_reduce(out, dist._make_nccl_premul_sum(torch.tensor([0.25])))
    assert torch.equal(out, torch.full((3,), 0.25 * job.world))
    job.fails("UNSUPPORTED", ["int32", "premul_sum"],
              lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), op))
    assert not any("premul" in what for what in gradwire.torch.stats()["slower"])


def moves(job):
    for dtype in [*DATATYPES, torch.int16, torch.complex64, torch.float8_e4m3fn]:
        if dtype in (torch.int16, torch.complex64, torch.float8_e4m3fn):
            tensor = job.inputs(torch.float32, 77).to(dtype)
            dist.broadcast(tensor, 1)
            right = job.inputs(torch.float32, 77, rank=1).to(dtype)
            assert torch.equal(tensor.view(torch.uint8), right.view(torch.uint8))
            continue
        job.same(lambda g, t: dist.broadcast(t, 1, group=g), job.inputs(dtype, 1001))

        def gather(group, t, *blocks):
            dist.all_gather(list(blocks), t, group=group)

        blocks = [torch.zeros(1001, dtype=dtype) for _ in range(job.world)]
        job.same(gather, job.inputs(dtype, 1001), *blocks)
        job.same(
            lambda g, t, out: dist.all_gather_into_tensor(out, t, group=g),
            job.inputs(dtype, 100_000),
            torch.zeros(job.world * 100_000, dtype=dtype),
        )
    blocks = [torch.zeros(3 + rank) for rank in range(job.world)]
    dist.all_gather(blocks, torch.full((3 + job.rank,), float(job.rank)))
    assert all(bool((block == rank).all()) for rank, block in enumerate(blocks))


def scatters(job):
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        whole = job.inputs(dtype, 50_000 * job.world)
        summed = whole.clone()
        dist.all_reduce(summed, group=job.gloo)
        right = summed.view(job.world, -1)[job.rank]
        out = torch.empty(50_000, dtype=dtype)
        dist.reduce_scatter_tensor(out, whole)
        assert torch.equal(out, right)
        out.zero_()
        dist.reduce_scatter(out, list(whole.view(job.world, -1).clone()))
        assert torch.equal(out, right)
        mine = whole.view(job.world, -1)[job.rank]  # in place, as FSDP2
        dist.reduce_scatter_tensor(mine, whole)
        assert torch.equal(mine, right)
        job.checks += 3
    sizes = [2 + rank for rank in range(job.world)]
    out = torch.zeros(sizes[job.rank])
    dist.reduce_scatter(out, [torch.full((size,), 1.0) for size in sizes])
    assert bool((out == job.world).all())


def many(job):
    tensors = [torch.full((i + 1,), float(job.rank)) for i in range(400)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in works:
        work.wait()
        assert work.is_completed()
    total = job.world * (job.world - 1) / 2
    assert all(bool((t == total).all()) for t in tensors)
    tensor = torch.ones(100)
    futures = [dist.all_reduce(tensor, async_op=True).get_future() for _ in range(5)]
    values = [future.then(lambda f: f.value()[0].sum().item()).wait() for future in futures]
    assert values[-1] == 100.0 * job.world ** 5, values
    tensors = [torch.full((n,), 1.0) for n in (1, 1000, 70_000)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all(bool((t == job.world).all()) for t in tensors)


def groups(job):
    for ranks in ([0], [0, job.world - 1], [1]):
        group = dist.new_group(ranks)
        if job.rank in ranks:
            tensor = torch.tensor([float(job.rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(ranks)
            dist.destroy_process_group(group)


def in_another_order(job):
    mirrored = dist.new_group(list(reversed(range(job.world))), sort_ranks=False)
    out = torch.empty(job.world)
    dist.all_gather_into_tensor(out, torch.tensor([float(job.rank)]), group=mirrored)
    assert out.tolist() == [float(r) for r in reversed(range(job.world))], out
    tensor = torch.full((4,), float(job.rank))
    dist.broadcast(tensor, 0, group=mirrored)
    assert tensor.tolist() == [0.0] * 4
    out = torch.empty(3)
    whole = torch.arange(3.0 * job.world)
    dist.reduce_scatter_tensor(out, whole, group=mirrored)
    place = job.world - 1 - job.rank
    assert torch.equal(out, whole[3 * place : 3 * place + 3] * job.world)


def memory(job):
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    with torch.device("meta"):  # what torch makes otherwise
        for count in (0, 10):
            tensor = backend.allocate_tensor(
                count, dtype=torch.float32, device=torch.device("cpu")
            )
            assert tensor.is_cpu and tensor.numel() == count
    before = gradwire.torch.stats()
    for _ in range(3):
        tensor = backend.allocate_tensor(300_000, dtype=torch.float32, device=torch.device("cpu"))
        tensor.fill_(1)
        dist.all_reduce(tensor)
        assert bool((tensor == job.world).all())
        del tensor
    after = gradwire.torch.stats()
    assert after["library_copies"] == before["library_copies"], (before, after)
    dist.all_reduce(torch.ones(10))
    assert gradwire.torch.stats()["library_copies"] > before["library_copies"]


def one_and_all(job):
    for root in (0, job.world - 1):
        tensor = job.inputs(torch.float32, 33)
        blocks = [torch.zeros(33) for _ in range(job.world)]

        def gather(group, t, *out, root=root):
            dist.gather(t, list(out) if job.rank == root else None, root, group=group)

        job.same(gather, tensor, *blocks)

        def scatter(group, t, *parts, root=root):
            dist.scatter(t, list(parts) if job.rank == root else None, root, group=group)

        job.same(scatter, tensor, *[job.inputs(torch.float32, 33, i) for i in range(job.world)])
    said = [None] * job.world
    dist.all_gather_object(said, {"rank": job.rank, "text": "x" * (job.rank * 1000)})
    assert [one["rank"] for one in said] == list(range(job.world))
    one = [job.rank, "a"]
    dist.broadcast_object_list(one, 1)
    assert one == [1, "a"]


def all_to_all(job):
    world = job.world
    job.same(
        lambda g, t, out: dist.all_to_all_single(out, t, group=g),
        job.inputs(torch.float32, 6 * world), torch.zeros(6 * world),
    )
    # Rank r sends r + s rows of two to rank s.
    mine = [job.rank + other for other in range(world)]
    tensor = job.inputs(torch.int64, 2 * sum(mine)).view(-1, 2)
    job.same(
        lambda g, t, out: dist.all_to_all_single(out, t, mine, mine, group=g),
        tensor, torch.zeros_like(tensor),
    )
    works = []
    for _ in range(3):  # what is posted later comes later
        out = torch.zeros_like(tensor)
        works.append(dist.all_to_all_single(out, tensor, mine, mine, async_op=True))
        total = torch.ones(1)
        works.append(dist.all_reduce(total, async_op=True))
    for work in works:
        work.wait()
    assert total.item() == world
    inputs = [torch.full((3 + other,), float(job.rank)) for other in range(world)]
    outputs = [torch.zeros(3 + job.rank) for _ in range(world)]
    dist.all_to_all(outputs, inputs)
    assert all(bool((t == rank).all()) for rank, t in enumerate(outputs))


def to_one(job):
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    # The recv is first: it holds back neither this process's send nor its all-reduce.
    got, total = torch.zeros(70_000), torch.ones(5)
    works = [dist.irecv(got, left), dist.all_reduce(total, async_op=True)]
    works.append(dist.isend(torch.full((70_000,), float(job.rank)), right))
    for work in works:
        work.wait()
        assert work.is_completed()
    assert bool((got == left).all()) and bool((total == job.world).all())
    got = [torch.zeros(3, dtype=torch.int16) for _ in range(10)]
    sent = [torch.full((3,), i, dtype=torch.int16) for i in range(10)]
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, t, left) for t in got]
        + [dist.P2POp(dist.isend, t, right) for t in sent]
    ):
        work.wait()
    assert all(torch.equal(a, b) for a, b in zip(got, sent))
    if job.rank == 0:
        dist.send_object_list(["an object", 1], 1)
    elif job.rank == 1:
        got = [None, None]
        dist.recv_object_list(got, 0)
        assert got == ["an object", 1]
    job.fails("UNSUPPORTED", ["any source"], lambda: dist.recv(torch.ones(1)))


def mistakes(job):
    short = torch.ones(3, dtype=torch.float8_e4m3fn)
    job.fails("UNSUPPORTED", ["float8_e4m3fn", "float32"], lambda: dist.all_reduce(short))
    sparse = torch.ones(3).to_sparse()
    job.fails("UNSUPPORTED", ["sparse", "to_dense"],
              lambda: dist.all_reduce(sparse, dist.ReduceOp.MAX))
    # The last: it ends the group on all.
    group = dist.new_group(list(range(job.world)))
    try:
        dist.all_reduce(torch.ones(4 + (job.rank == 0)), group=group)
    except GradwireError as error:
        text = str(error)
        assert error.code.name in ("MISMATCH", "ABORTED"), text
        assert "rank %d: allreduce of float32[" % job.rank in text, text
        assert "called" in text, text
    else:
        raise AssertionError("sizes that differ went through")


def main():
    job = Job()
    for part in (reductions, moves, scatters, many, groups, in_another_order, one_and_all,
                 all_to_all, to_one, not_waited_for, others_go_on, memory, destroyed_with_a_queue,
                 mistakes):
        part(job)
    if job.rank == 0:
        print("%d processes, %d comparisons; %s" % (job.world, job.checks, gradwire.torch.stats()))
    dist.barrier()
    dist.destroy_process_group()
    assert gradwire.torch.stats() == {}


if __name__ == "__main__":
    sys.exit(main())
