# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that goes on without the ranks it lost: the last rank kills itself, the
others get an error that names it, shrink their group, and sum by the smaller one."""
import os
import signal

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import SHRINK_ABORT, shrink_group

import gradwire.torch
from gradwire import GradwireError


def main():
    dist.init_process_group("gradwire")
    rank, world = dist.get_rank(), dist.get_world_size()
    part = dist.new_group(list(range(1, world)))
    if rank > 0:
        # A group that is well, without its first member, which has left by itself.
        if rank > 1:
            smaller = shrink_group([0], part)
            total = torch.full((1000,), float(rank))
            dist.all_reduce(total, group=smaller)
            assert bool((total == sum(range(2, world))).all())
    dist.barrier()
    tensor = torch.full((100_000,), float(rank))
    for step in range(1_000_000):
        if step == 20 and rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.all_reduce(tensor.clone())
        except GradwireError as error:
            print("rank %d: %s" % (rank, error), flush=True)
            break
    shrink_group([world - 1], shrink_flags=SHRINK_ABORT)
    assert (dist.get_rank(), dist.get_world_size()) == (rank, world - 1)
    for dtype in (torch.float32, torch.bfloat16):
        total = torch.full((100_000,), float(rank), dtype=dtype)
        dist.all_reduce(total)
        assert bool((total == sum(range(world - 1))).all())
    blocks = [torch.empty(3) for _ in range(world - 1)]
    dist.all_gather(blocks, torch.full((3,), float(rank)))
    assert all(bool((block == at).all()) for at, block in enumerate(blocks))
    dist.barrier()
    dist.destroy_process_group()
    print("ended with %d" % (world - 1), flush=True)


if __name__ == "__main__":
    main()
