# SPDX-License-Identifier: BSD-3-Clause
"""The collectives of torch.distributed that differ.py calls: each function makes one call, right or
wrong, with what it draws, on the draw's group. And how often each call is drawn."""
import torch
import torch.distributed as dist

import differ_other as other
from differ_draw import LISTS, Fatal, whole_dims


# ---- reductions

def all_reduce(d):
    dims, dtype = d.dims(), d.dtype(True)
    tensor = d.result(d.tensor(dims, dtype))
    d.ends(dist.all_reduce(tensor, op=d.op(dtype), **d.how()))


def all_reduce_coalesced(d):
    dtype = d.dtype(True)
    shared = d.rng.random() < 0.2
    tensors = [d.result(d.tensor(d.dims(), dtype, dense=shared))
               for _ in range(d.rng.randint(1, 4))]
    if shared and isinstance(tensors[0], torch.Tensor) and tensors[0].layout is torch.strided:
        flat = d.tensors[0].tensor.detach().view(-1)
        tensors.append(flat[d.say("and from", d.rng.randint(0, flat.numel())):])
        d.tags.add("shared")
    if d.wrong("no tensors at all"):
        tensors = d.say("but", [])
    d.ends(dist.all_reduce_coalesced(tensors, op=d.op(dtype), **d.how()))


def reduce(d):
    dims, dtype = d.dims(), d.dtype(True)
    tensor = d.result(d.tensor(dims, dtype))
    root = d.root("dst")
    if d.rank != d.root_rank:
        d.tags.add("clobbers")
    d.ends(dist.reduce(tensor, op=d.op(dtype), **root, **d.how()))


def reduce_scatter(d):
    dims, dtype = d.dims(), d.dtype(True)
    inputs = d.many(dims, dtype)
    output = d.result(d.tensor(dims, dtype))
    d.ends(dist.reduce_scatter(output, inputs, op=d.op(dtype), **d.how()))


def reduce_scatter_tensor(d):
    function = d.rng.choice([dist.reduce_scatter_tensor, dist.reduce_scatter_single])
    dims, dtype = d.dims(), d.dtype(True)
    inside = d.rng.random() < 0.15
    source = d.tensor(whole_dims(d, dims), dtype, dense=inside)
    if inside and isinstance(source, torch.Tensor) and source.layout is torch.strided:
        count = source.numel() // d.size
        output = source.detach().view(-1)[d.rank * count:(d.rank + 1) * count]
        d.tags.add("in place")
    else:
        output = d.tensor(dims, dtype)
    d.result(output)
    if d.on_gloo and isinstance(output, torch.Tensor) and output.dim() == 0:
        raise Fatal("Gloo reads the first of no dimensions")
    d.ends(function(output, source, op=d.op(dtype), **d.how()))


# ---- gathers and scatters

def broadcast(d):
    tensor = d.tensor(d.dims(), d.dtype())
    d.ends(dist.broadcast(tensor, **d.root("src"), **d.how()))


def all_gather(d):
    dims, dtype = d.dims(), d.dtype()
    outputs = d.many(dims, dtype)
    d.ends(dist.all_gather(outputs, d.tensor(dims, dtype), **d.how()))


def all_gather_of_sizes(d):
    """A block of each process's own size."""
    dtype, sizes = d.dtype(), [d.rng.randint(0, 6) for _ in range(d.size)]
    outputs = [d.tensor([n], dtype) for n in sizes]
    if len(set(sizes)) > 1:
        d.tags.add("sizes")
    source = d.tensor([sizes[d.rank]], dtype)
    if not d.plainly:
        return d.ends(dist.all_gather(outputs, source, **d.how()))
    outputs[d.rank].copy_(source)
    for rank, output in enumerate(outputs):
        dist.broadcast(output, group_src=rank, group=d.group)


def all_gather_into_tensor(d):
    function = d.rng.choice([dist.all_gather_into_tensor, dist.all_gather_single])
    dims, dtype = d.dims(), d.dtype()
    inside = d.rng.random() < 0.15
    output = d.tensor(whole_dims(d, dims), dtype, dense=inside)
    if inside and isinstance(output, torch.Tensor) and output.layout is torch.strided:
        count = output.numel() // d.size
        source = output.detach().view(-1)[d.rank * count:(d.rank + 1) * count]
        d.tags.add("in place")
    else:
        source = d.tensor(dims, dtype)
    d.ends(function(output, source, **d.how()))


def all_gather_coalesced(d):
    kinds = [(d.dims(), d.dtype()) for _ in range(d.rng.randint(1, 3))]
    inputs = [d.tensor(*kind) for kind in kinds]
    outputs = [[d.tensor(*kind) for kind in kinds] for _ in range(d.size)]
    if len({kind[1] for kind in kinds}) > 1:
        d.tags.add("types")
    if d.wrong("a list of another length"):
        outputs = d.rng.choice([outputs[:-1], outputs + outputs[:1], [o[:-1] for o in outputs]])
    d.ends(dist.all_gather_coalesced(outputs, inputs, **d.how()))


def gather(d):
    dims, dtype, root = d.dims(), d.dtype(), d.root("dst")
    tensor, outputs = d.tensor(dims, dtype), d.lists_of_root(dims, dtype)
    if d.rank != d.root_rank:
        outputs = outputs if d.mistake in LISTS else None
    if d.wrong("lists of the others alone"):
        outputs = None if d.rank == d.root_rank else [torch.ones(1)]
    d.ends(dist.gather(tensor, outputs, **root, **d.how()))


def scatter(d):
    dims, dtype, root = d.dims(), d.dtype(), d.root("src")
    tensor, inputs = d.tensor(dims, dtype), d.lists_of_root(dims, dtype)
    if d.rank != d.root_rank:
        inputs = inputs if d.mistake in LISTS else None
    if d.wrong("lists of the others alone"):
        inputs = None if d.rank == d.root_rank else [torch.ones(1)]
    d.ends(dist.scatter(tensor, inputs, **root, **d.how()))


def gather_single(d):
    dims, dtype, root = d.dims(), d.dtype(), d.root("dst")
    tensor, output = d.tensor(dims, dtype), d.tensor(whole_dims(d, dims), dtype)
    d.ends(dist.gather_single(tensor, output if d.rank == d.root_rank else None, **root, **d.how()))


# ---- all to all

def drawn_splits(d, equal):
    """[size][size] rows from each process to each: some nothing, some to nobody."""
    most = d.rng.choice([0, 1, 3, 8])
    if d.rng.random() < equal:
        return [[most] * d.size for _ in range(d.size)]
    return [[d.rng.choice([0, d.rng.randint(0, most)]) for _ in range(d.size)]
            for _ in range(d.size)]


def all_to_all_single(d):
    d.tags.add("all to all")
    dtype, row = d.dtype(), d.dims(3)[1:]
    sends = drawn_splits(d, 0.3)
    d.plain = d.plain or d.rng.random() < 0.8
    sent, got = sends[d.rank], [sends[r][d.rank] for r in range(d.size)]
    source = d.tensor([sum(sent), *row], dtype, rows=True)
    output = d.tensor([sum(got), *row], dtype, rows=True)
    splits = {"output_split_sizes": got, "input_split_sizes": sent}
    if len(set(sent + got)) == 1 and d.rng.random() < 0.7:
        splits = {}
    if d.wrong("splits too few"):
        splits = {"output_split_sizes": got[1:], "input_split_sizes": sent}
    if d.wrong("splits of more"):
        splits = {"output_split_sizes": got, "input_split_sizes": [n + 1 for n in sent]}
    if d.wrong("splits below 0"):
        splits = {"output_split_sizes": [-1, *got[:-1]], "input_split_sizes": sent}
    for name, value in splits.items():
        d.say(name, value)
    d.ends(dist.all_to_all_single(output, source, **splits, **d.how()))


def all_to_all(d):
    d.tags.add("all to all")
    dtype, row, sends = d.dtype(), d.dims(3)[1:], drawn_splits(d, 0.85)
    inputs = [d.tensor([n, *row], dtype) for n in sends[d.rank]]
    outputs = [d.tensor([sends[r][d.rank], *row], dtype) for r in range(d.size)]
    if d.wrong("a list of another length"):
        outputs, inputs = d.rng.choice([(outputs[:-1], inputs), (outputs, inputs[:-1]), ([], []),
                                        (outputs + outputs[:1], inputs + inputs[:1])])
    if not d.plainly:
        return d.ends(dist.all_to_all(outputs, inputs, **d.how()))
    sizes = [t.numel() for t in outputs]
    whole = torch.zeros(sum(sizes), dtype=torch.uint8)
    dist.all_to_all_single(whole, torch.cat(inputs), sizes, [t.numel() for t in inputs],
                           group=d.group)
    for output, block in zip(outputs, whole.split(sizes)):
        output.copy_(block)


# How often each is drawn.
CALLS = {
    all_reduce: 12, all_reduce_coalesced: 5, reduce: 6, reduce_scatter: 7, reduce_scatter_tensor: 7,
    broadcast: 7, all_gather: 7, all_gather_of_sizes: 2, all_gather_into_tensor: 7,
    all_gather_coalesced: 3, gather: 6, scatter: 6, gather_single: 1, all_to_all_single: 8,
    all_to_all: 7, other.send: 8, other.batch: 5, other.recv_from_any: 1, other.barrier: 3,
    other.monitored_barrier: 1, other.objects: 5, other.coalescing: 4, other.several: 5,
    other.tells: 2, other.split_group: 1, other.methods: 8,
}
