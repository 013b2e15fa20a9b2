# SPDX-License-Identifier: BSD-3-Clause
"""All-reduce of sparse tensors, as Gloo has it: of each process's indices and values all are
gathered, and every process adds them, in the order of the ranks.

How many each process has is gathered first, within the call: it returns when all have made it.
"""
import torch
import torch.distributed as dist

from .._native import GradwireError, Status
from . import arguments

_DIMS_MAX = 8
# Before the sizes of its dimensions: what is the same on all processes, and then how many elements
# this one has.
_HEAD = 4


def _refuse(call, text):
    return GradwireError(Status.UNSUPPORTED, "%s of a sparse tensor in process group %s: %s"
                         % (call.name, call.group, text))


def _types():
    return sorted((value for value in vars(torch).values() if isinstance(value, torch.dtype)),
                  key=str)


def _told(tensor):
    sizes = list(tensor.shape) + [0] * (_DIMS_MAX - tensor.dim())
    return [_types().index(tensor.dtype), tensor.sparse_dim(), tensor.dense_dim(),
            tensor.dim()] + sizes + [tensor._nnz()]


def _name(told):
    return "%s%s, %d sparse dimensions" % (
        str(_types()[told[0]]).replace("torch.", ""), told[_HEAD:_HEAD + told[3]], told[1])


def _compared(backend, call, tensor):
    """How many elements each process has."""
    own = torch.tensor(_told(tensor))
    told = torch.empty(backend._size * own.numel(), dtype=own.dtype)
    backend.all_gather_single(told, own, None).wait()
    told = told.view(backend._size, -1).tolist()
    for rank, other in enumerate(told):
        if other[:-1] != told[0][:-1]:
            arguments.refuse(call, "rank %d has a sparse tensor of %s, and rank %d of %s"
                             % (0, _name(told[0]), rank, _name(other)))
    return [other[-1] for other in told]


def all_reduce(backend, call, tensor, opts):
    """Returns the work."""
    if tensor.layout is not torch.sparse_coo or not tensor.is_cpu:
        raise _refuse(call, "it takes COO tensors on the CPU, not %s on %s: use to_dense()"
                      % (str(tensor.layout).replace("torch.", ""), tensor.device))
    if opts.reduceOp != dist.ReduceOp.SUM:
        raise _refuse(call, "they are reduced by sum alone: use to_dense()")
    if tensor.dim() > _DIMS_MAX:
        raise _refuse(call, "it has %d dimensions, and %d are the most" % (tensor.dim(), _DIMS_MAX))
    if backend._coalesced is not None:
        raise _refuse(call, "it is no part of a coalesced call: make it before or after that")
    source = tensor.detach().coalesce()
    counts = _compared(backend, call, source)
    size, most = backend._size, max(counts)
    work = backend._work(call, [], opts, about="sum of sparse %s[%s], %d of its elements"
                         % (str(tensor.dtype).replace("torch.", ""),
                            ", ".join(map(str, tensor.shape)), source._nnz()))
    work.tensors = [tensor]
    parts = []
    for part, dim in ((source.indices(), 1), (source.values(), 0)):
        # All have as many as the one that has most: the others' ends are not looked at.
        shape = list(part.shape)
        shape[dim] = most
        padded = torch.zeros(shape, dtype=part.dtype)
        padded.narrow(dim, 0, source._nnz()).copy_(part)
        whole = torch.empty([size, *shape], dtype=part.dtype)
        backend._copied(padded)
        if padded.numel():
            backend._add_allgather(work, padded, whole)
        parts.append(whole)
    indices, values = parts

    def add():
        total = None
        for rank, count in enumerate(counts):
            one = torch.sparse_coo_tensor(
                indices[rank, :, :count], values[rank, :count], tensor.shape,
                is_coalesced=True, check_invariants=False)
            total = one if total is None else total + one
        tensor.copy_(total.coalesce())

    work.finish = add
    return backend._sealed(work)
