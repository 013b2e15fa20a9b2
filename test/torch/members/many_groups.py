# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that makes process groups and ends them, again and again: many_groups.py
TIMES. What is left is counted: files, threads, memory, and what torch and the backend keep."""
import gc
import os
import random
import sys

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import gradwire.torch
from gradwire.torch.engine import Engine

# Of memory, for each group that was. Torch itself keeps 1 to 2 KB of it: as much was counted with
# Gloo, and no object of ours (tracemalloc, gc).
GROWTH_BYTES = 4096


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counted():
    gc.collect()
    engine = Engine.current()
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "channels": len(engine._channels),
        "users": engine._users,
        "backends": len(gradwire.torch.backend._alive),
        "groups": len(c10d._world.pg_map),
        "maps": sum(1 for _ in open("/proc/self/maps")) // 16,  # some come with the heap
    }


def one(rank, world, chooser):
    """A group of some processes, made in one of the ways, used and ended. All choose alike."""
    ranks = sorted(chooser.sample(range(world), chooser.randint(2, world)))
    if chooser.random() < 0.5:
        group = dist.new_group(ranks)
    else:
        rest = [[other] for other in range(world) if other not in ranks]
        group = dist.split_group(split_ranks=[ranks, *rest])
    if rank in ranks:
        tensor = torch.full((100,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert tensor[0].item() == sum(ranks), (tensor, ranks)
    if group is not None and group != dist.GroupMember.NON_GROUP_MEMBER:
        dist.destroy_process_group(group)


def main():
    torch.set_num_threads(1)
    times = int(sys.argv[1])
    dist.init_process_group("gradwire")
    rank, world = dist.get_rank(), dist.get_world_size()
    chooser = random.Random(7)
    store = c10d._get_default_store()
    for _ in range(times // 4):
        one(rank, world, chooser)
    dist.barrier()
    before, bytes_before, keys_before = counted(), resident(), store.num_keys()
    dist.barrier()
    for _ in range(times):
        one(rank, world, chooser)
    dist.barrier()
    after, grown = counted(), (resident() - bytes_before) / times
    keys = (store.num_keys() - keys_before) / times
    print("rank %d: %d groups, %.0f bytes and %.1f keys of the store for each; %s" % (
        rank, times, grown, keys, after), flush=True)
    assert after == before, (before, after)
    assert grown < GROWTH_BYTES, grown
    assert keys <= world, keys  # one for each process: how often it made this group
    dist.barrier()
    dist.destroy_process_group()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
