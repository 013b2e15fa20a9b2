# SPDX-License-Identifier: BSD-3-Clause
"""Calls of torch.distributed beside the collectives that differ.py makes: sends and receives,
barriers, objects, several calls at once, groups, and the methods of a group."""
import datetime

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from differ_draw import LISTS, Fatal, whole_dims
from guarded import REDUCED


# ---- sends and receives

def pair(d):
    """Who sends and who receives."""
    source, target = d.rng.randrange(d.size), d.rng.randrange(d.size)
    if source == target and d.rng.random() < 0.9:
        target = (source + 1) % d.size
    if source == target:
        d.mistake = d.mistake or "to itself"
    tag = d.rng.choice([0, 0, 0, 1, 7, 1 << 20])
    d.tags.add("transfer")
    d.plain = d.plain or d.rng.random() < 0.8  # Gloo sends no views
    if d.wrong("a peer that is not there"):
        return source, target, tag, 99
    if d.wrong("a tag below 0"):
        tag = -1
    return source, target, tag, None


def send(d):
    source, target, tag, nobody = pair(d)
    dims, dtype = d.dims(), d.dtype()
    d.say("from %d to" % source, target)
    d.say("tag", tag)
    works = []
    at_once = d.mode == "sync"
    if d.rank == source:
        peer = {"group_dst": target} if nobody is None else {"dst": nobody}
        works.append((dist.send if at_once else dist.isend)(
            d.tensor(dims, dtype), **peer, group=d.group, tag=tag))
    if d.rank == target:
        peer = {"group_src": source} if nobody is None else {"src": nobody}
        works.append((dist.recv if at_once else dist.irecv)(
            d.tensor(dims, dtype), **peer, group=d.group, tag=tag))
    for work in works:
        if at_once:
            d.note(work)
        else:
            d.ends(work)
    d.posted = True


def batch(d):
    """Each process sends some to the next one and receives as many from the one before."""
    if d.size == 1:
        return
    d.tags.add("transfer")
    d.plain = d.plain or d.rng.random() < 0.8
    dtype, count = d.dtype(), d.rng.randint(1, 5)
    shapes = [d.dims() for _ in range(count)]
    before = (d.rank - 1) % d.size
    ops = [dist.P2POp(dist.isend, d.tensor(dims, dtype), group_peer=d.other, group=d.group)
           for dims in shapes]
    ops += [dist.P2POp(dist.irecv, d.tensor(dims, dtype), group_peer=before, group=d.group)
            for dims in shapes]
    if d.rng.random() < 0.5:
        ops = ops[count:] + ops[:count]
    if d.wrong("no ops"):
        ops = d.rng.choice([[], None, [1]])
    for work in dist.batch_isend_irecv(ops):  # one for all, or one for each
        work.wait()


def recv_from_any(d):
    """On Gloo the others send; gradwire has no such call, so nobody sends there."""
    tag, d.wrong_at = d.rng.randint(0, 3), None
    dims, dtype = d.dims(), REDUCED[d.rng.randrange(len(REDUCED))]
    d.tags.add("any source")
    if d.rank == 0:
        for _ in range(d.size - 1):
            got = dist.recv(d.tensor(dims, dtype, dense=True), group=d.group, tag=tag)
            d.note(isinstance(got, int))
    elif d.on_gloo:
        dist.send(torch.ones(dims, dtype=dtype), group_dst=0, group=d.group, tag=tag)


# ---- barriers

def barrier(d):
    d.reduces = d.posted = True
    for _ in range(d.rng.randint(1, 3)):
        dropped = dist.all_reduce(d.tensor([4], torch.float32), group=d.group, async_op=True)
        if d.rng.random() < 0.5:
            dropped.wait()
    if d.wrong("devices that are no list"):
        d.ends(dist.barrier(device_ids="cpu", **d.how()))
    d.ends(dist.barrier(**d.how()))


def monitored_barrier(d):
    d.tags.add("monitored")
    dist.monitored_barrier(group=d.group, timeout=datetime.timedelta(seconds=d.limit_s))


# ---- objects

def thing(d, may):
    """Something that can be pickled, unless it cannot."""
    made = d.rng.choice([None, 3, "text" * d.rng.randint(0, 300), {"a": [1, (2, b"x")]},
                         torch.ones(2), list(range(d.rng.randint(0, 2000)))])
    return (lambda: 1) if may and d.wrong("what cannot be pickled") else [d.rank, made]


def objects(d):
    kind = d.rng.choice(["all_gather_object", "gather_object", "broadcast_object_list",
                         "scatter_object_list", "send_object_list"])
    d.say("kind", kind)
    given, count = thing(d, "gather" in kind), d.rng.randint(1, 3)
    if kind == "all_gather_object":
        got = [None] * (d.size - d.wrong("a list of another length"))
        dist.all_gather_object(got, given, group=d.group)
    elif kind == "gather_object":
        root = d.root("dst")
        got = [None] * d.size if d.rank == d.root_rank else None
        dist.gather_object(given, got, **root, group=d.group)
    elif kind == "broadcast_object_list":
        got = [given] * count
        dist.broadcast_object_list(got, **d.root("src"), group=d.group)
    elif kind == "scatter_object_list":
        root, got = d.root("src"), [None]
        if d.wrong("no place"):
            got = []
        dist.scatter_object_list(got, [given] * d.size if d.rank == d.root_rank else None,
                                 **root, group=d.group)
    else:
        got = [given] * count
        if d.size > 1 and d.rank == 0:
            dist.send_object_list(got, group_dst=1, group=d.group)
        elif d.rank == 1:
            dist.recv_object_list(got, group_src=0, group=d.group)
    d.note(repr(got))


# ---- several at once

def coalescing(d):
    """Calls of one kind within one coalescing manager."""
    d.posted = True
    kind = d.rng.randrange(3)
    dtype = d.dtype(kind != 1)
    asynchronous, op, count = d.rng.random() < 0.5, d.op(dtype), d.rng.randint(0, 4)
    try:
        with dist._coalescing_manager(group=d.group, async_ops=asynchronous) as manager:
            for _ in range(count):
                coalesced(d, kind, dtype, op)
    except Exception:  # torch would take all later calls of the group for parts of this one
        dist.distributed_c10d._world.pg_coalesce_state.pop(d.group, None)
        raise
    if asynchronous:
        manager.wait()


def coalesced(d, kind, dtype, op):
    dims = d.dims() or [1]
    if kind == 0:
        dist.all_reduce(d.result(d.tensor(dims, dtype)), op=op, group=d.group)
    elif kind == 1:
        whole, own = d.tensor(whole_dims(d, dims), dtype), d.tensor(dims, dtype)
        if d.on_gloo and whole.dim() > 0 and len(whole.chunk(d.size)) < d.size:
            raise Fatal("Gloo takes a chunk for each process, however few there are")
        dist.all_gather_into_tensor(whole, own, group=d.group)
    else:
        dist.reduce_scatter_tensor(d.result(d.tensor(dims, dtype)),
                                   d.tensor(whole_dims(d, dims), dtype), op=op, group=d.group)


def several(d):
    """Asynchronous calls, waited for in another order, or not at all."""
    works, moved = [], d.rng.random() < 0.5
    d.tags.add("dropped")
    d.posted = True
    for _ in range(d.rng.randint(2, 6)):
        dtype = d.dtype(not moved)
        tensor = d.tensor(d.dims(), dtype)
        if moved:
            works.append(dist.broadcast(tensor, group_src=0, group=d.group, async_op=True))
        else:
            op = dist.ReduceOp.MAX if d.plainly and dtype is torch.bool else dist.ReduceOp.SUM
            works.append(dist.all_reduce(tensor, op=op, group=d.group, async_op=True))
    d.rng.shuffle(works)
    for work in works[:d.rng.randint(0, len(works))]:
        work.wait()
    del works
    dist.barrier(group=d.group)


# ---- groups and what they tell

def tells(d):
    d.reduces = d.posted = True
    g = d.group
    d.note([dist.get_rank(g), dist.get_world_size(g), dist.get_process_group_ranks(g), g.size(),
            dist.get_group_rank(g, d.ranks[0]), dist.get_global_rank(g, d.size - 1), g.rank()])
    before = g._get_sequence_number_for_group()
    for _ in range(d.rng.randint(0, 3)):
        dist.all_reduce(d.tensor([2], torch.float32), group=g)
    d.note(g._get_sequence_number_for_group() - before)
    if d.wrong("a rank that is not there"):
        dist.get_global_rank(g, 99)


def split_group(d):
    if d.size < dist.get_world_size():
        return  # torch would count the groups of these alone, and the next one's names differ
    half = d.rng.randint(1, d.size)
    parts = [list(range(half)), list(range(half, d.size))]
    made = dist.split_group(d.group, [part for part in parts if part])
    if made is not None and made is not dist.GroupMember.NON_GROUP_MEMBER:
        d.reduces = True
        dist.all_reduce(d.tensor(d.dims(), torch.float32), group=made)
        d.note([made.size(), made.rank()])
        dist.destroy_process_group(made)


# ---- the methods of a process group, whose arguments torch does not look at

def options(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def methods(d):
    kind = d.rng.randrange(8)
    dims, dtype = d.dims(), d.dtype(kind in (0, 2, 6))
    lists = [d.many(dims, dtype, d.rng.choice([0, 1, 1, 1, 1, 2])) for _ in range(1)]
    lists += [d.many(dims, dtype)] * d.rng.choice([1, 1, 1, 1, 0, 2])
    tensors, others, root = lists[0], lists[1:], d.rng.choice([0, 0, 0, -1, d.size])
    d.say("method", kind)
    d.say("root", root)
    d.say("lists", [len(tensors), len(others)])
    if len(tensors) != 1 or root != 0 or (kind > 2 and len(others) != 1):
        d.mistake = "a list or a root"
    d.tags.add("method")
    g, alone = d.group, others
    if d.rank != 0:
        alone = (others or [tensors]) if d.mistake in LISTS else []
    calls = [
        lambda: g.allreduce(tensors, options(c10d.AllreduceOptions, reduceOp=d.op(dtype))),
        lambda: g.broadcast(tensors, options(c10d.BroadcastOptions, rootRank=root)),
        lambda: g.reduce(tensors, options(c10d.ReduceOptions, rootRank=root, reduceOp=d.op(dtype))),
        lambda: g.allgather(others, tensors),
        lambda: g.gather(alone, tensors, options(c10d.GatherOptions, rootRank=root)),
        lambda: g.scatter(tensors, alone, options(c10d.ScatterOptions, rootRank=root)),
        lambda: g.reduce_scatter(tensors, others, options(c10d.ReduceScatterOptions,
                                                          reduceOp=d.op(dtype))),
        lambda: g.alltoall(others[0], others[-1], c10d.AllToAllOptions()),
    ]
    for tensor in tensors if d.reduces else ():
        d.result(tensor)
    if kind == 2:
        d.tags.add("clobbers" if d.rank else "root")
    calls[kind]().wait()
