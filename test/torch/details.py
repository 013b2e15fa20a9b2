# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that looks at what a user sees beside results: sequence numbers,
TORCH_DISTRIBUTED_DEBUG=DETAIL, split groups, coalescing, a late process, an abort."""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

import gradwire.torch


def backend_of(group):
    return group._get_backend(torch.device("cpu"))


def raised(call):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return str(error)
    raise AssertionError("nothing was raised")


def numbers(rank, world):
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
    assert group._get_sequence_number_for_group() == before + 3
    said = [None] * world
    dist.all_gather_object(said, before)
    assert len(set(said)) == 1, said


def splits(rank, world):
    half = dist.split_group(split_ranks=[list(range(0, world, 2)), list(range(1, world, 2))])
    total = torch.ones(3)
    dist.all_reduce(total, group=half)
    assert total[0] == len(range(rank % 2, world, 2)), total
    with dist._coalescing_manager(group=half, async_ops=True) as manager:
        more = [torch.ones(n) for n in (1, 5)]
        for tensor in more:
            dist.all_reduce(tensor, group=half)
    manager.wait()
    assert all(bool((t == total[0]).all()) for t in more)
    dist.destroy_process_group(half)


def a_late_process(rank, world):
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    late = world - 1
    if rank == late:
        dist.distributed_c10d._get_default_store().wait(["late/0"])
        text = raised(lambda: dist.all_reduce(torch.ones(8), group=group))
        assert "reached its timeout" in text, text
        return
    began = time.monotonic()
    text = raised(lambda: dist.all_reduce(torch.ones(8), group=group))
    assert time.monotonic() - began < 20
    assert "rank %d: allreduce of float32[8] (sum)" % rank in text, text
    assert "reached its timeout of 2.0 s" in text, text
    # Process 1 is at the late one's daemon, process 0 at the other; or the other was first.
    who = ("rank 1, whose clients", "member 1 of this rank")[rank]
    assert who in text or "a client of rank %d aborted the group" % (1 - rank) in text, text
    if rank == 0:
        dist.distributed_c10d._get_default_store().set("late/0", "go")


def an_abort(rank, world):
    group = dist.new_group()
    dist.all_reduce(torch.ones(1), group=group)
    if rank == 0:
        backend_of(group).abort()
        assert "was destroyed or aborted" in raised(lambda: dist.barrier(group=group))
    else:
        text = raised(lambda: dist.all_reduce(torch.ones(2), group=group))
        assert "rank 0 aborted its process group" in text, text


def abort_hooks(rank, world):
    """Called once, before the group's end is told, whatever ends it; a hook that fails holds up
    none. Torch 2.15 does not ask a Python backend whether it has them, and registers them."""
    def ended_by(end, timeout_s=60.0):
        called = []
        group = dist.new_group(timeout=datetime.timedelta(seconds=timeout_s))
        assert backend_of(group).supports_abort_hooks and not group.supports_abort_hooks
        group.register_abort_hook(1, lambda: called.append("first"))
        group.register_abort_hook(2, lambda: 1 // 0)
        group.register_abort_hook(3, lambda: called.append("gone"))
        group.register_abort_hook(4, lambda: called.append("last"))
        assert "already" in raised(lambda: group.register_abort_hook(4, lambda: None))
        group.unregister_abort_hook(3)
        assert "no abort hook 3" in raised(lambda: group.unregister_abort_hook(3))
        dist.all_reduce(torch.ones(1), group=group)
        assert called == []
        dist.barrier()
        end(group)
        for _ in range(2):
            raised(lambda: dist.all_reduce(torch.ones(2), group=group))
        assert called == ["first", "last"], called
        dist.barrier()

    ended_by(lambda group: backend_of(group).abort() if rank == 0 else None)
    # What differs between processes, and one that does not come.
    ended_by(lambda group: raised(lambda: dist.all_reduce(torch.ones(2 + rank), group=group)))
    ended_by(lambda group: time.sleep(4) if rank == 0 else None, 2.0)
    # A group that is destroyed ends by no error.
    called = []
    group = dist.new_group()
    group.register_abort_hook(1, lambda: called.append("hook"))
    dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    assert called == []


def debug(rank, world):
    """With DETAIL torch checks each call by calls of its own, on Gloo, before it is posted."""
    tensor = torch.full((4,), float(rank))
    dist.all_reduce(tensor)
    assert bool((tensor == world * (world - 1) / 2).all())
    out = torch.zeros(2 * world)
    dist.all_gather_into_tensor(out, torch.full((2,), float(rank)))
    dist.broadcast(out, 0)
    dist.barrier()
    text = raised(lambda: dist.all_reduce(torch.ones(3 + rank)))
    assert "mismatch" in text.lower() or "different" in text, text


def main():
    detail = len(sys.argv) > 1
    if detail:
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
    dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    for part in (debug, ) if detail else (
        numbers, splits, a_late_process, an_abort, abort_hooks
    ):
        part(rank, world)
        if rank == 0:
            print("passed: %s" % part.__name__, flush=True)
    if detail:
        os._exit(0)  # the group is in no state to be left in order
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
