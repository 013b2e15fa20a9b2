# SPDX-License-Identifier: BSD-3-Clause
"""Torch's element types and reductions as those of the C interface."""
import torch
from torch.distributed import ReduceOp

from .._native import GradwireError, Status
from ..client import DATATYPES, OPS
from .widened import NARROW

_OF_TORCH = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int8: "int8",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
}
BYTES = DATATYPES["uint8"]
_NAMES = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
    ReduceOp.PREMUL_SUM: "premul_sum",
}
# Of truth values, as bytes of 0 and 1. A sum is "any", as in torch: it must not become 2.
_OF_BOOL = {"sum": "max", "max": "max", "bor": "max", "prod": "min", "min": "min", "band": "min",
            "bxor": "bxor"}


def name_of(dtype):
    """As the C interface calls it, if it has this type."""
    return _OF_TORCH.get(dtype, str(dtype).replace("torch.", ""))


def redop_name(op):
    return _NAMES.get(op.op if hasattr(op, "op") else op, str(op))


def _none_of(dtype):
    """Redops that numbers of this type do not have."""
    return ("band", "bor", "bxor", "premul_sum") if dtype.is_floating_point else ("premul_sum",)


_plain = {}


def plain_reduction(dtype, op):
    """(The C interface's datatype, redop) if tensors of this type are reduced as they are; None if
    it takes reduction() to tell. For calls that shall cost little."""
    key = dtype, op.op if hasattr(op, "op") else op
    found = _plain.get(key, _plain)
    if found is _plain:
        found = None
        name = redop_name(op)
        if dtype in _OF_TORCH and name in OPS and name not in _none_of(dtype):
            found = DATATYPES[_OF_TORCH[dtype]], OPS[name]
        _plain[key] = found
    return found


def reduction(tensor, op):
    """How a contiguous tensor is reduced: (a view of it, the C interface's datatype and redop, and
    the factor by which the input is multiplied before, None if it is not)."""
    name = redop_name(op)
    factor = None
    if name == "premul_sum":
        factor = float(op.factor)  # of a tensor too, if it has one element
    view = tensor
    if tensor.dtype == torch.bool:
        name = _OF_BOOL.get(name, name)
        if name not in ("min", "max", "bxor"):
            raise _refused(tensor, op)
        view = tensor.view(torch.uint8)
    elif tensor.is_complex():
        if name not in ("sum", "avg", "premul_sum"):
            raise _refused(tensor, op)
        view = torch.view_as_real(tensor)
    if view.dtype not in _OF_TORCH or name not in OPS:
        raise _refused(tensor, op)
    if view.is_floating_point() and name in ("band", "bor", "bxor"):
        raise _refused(tensor, op)
    if factor is not None and not view.is_floating_point():
        raise _refused(tensor, op)
    return view, DATATYPES[_OF_TORCH[view.dtype]], OPS[name], factor


def check_reducible(tensors, op):
    """All of one call are reduced, or none: so the types are looked at before the first is."""
    for dtype in {tensor.dtype for tensor in tensors}:
        if dtype is NARROW and redop_name(op) in OPS and redop_name(op) != "premul_sum":
            continue
        if plain_reduction(dtype, op) is None:
            reduction(torch.empty(0, dtype=dtype, device="cpu"), op)


def _refused(tensor, op):
    return GradwireError(
        Status.UNSUPPORTED,
        "gradwire does not reduce %s by %s: it reduces %s, int16 and uint8 by %s; bool by all but "
        "avg and premul_sum; complex by sum, avg and premul_sum; integers by all but premul_sum, "
        "floats by all but band, bor and bxor. Move the tensor to one of these, or use Gloo for "
        "this group"
        % (
            str(tensor.dtype).replace("torch.", ""),
            redop_name(op),
            ", ".join(str(t).replace("torch.", "") for t in _OF_TORCH if t != torch.uint8),
            ", ".join(OPS),
        ),
    )
