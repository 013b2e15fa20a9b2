# SPDX-License-Identifier: BSD-3-Clause
"""Reductions of int16, which daemons do not reduce: as int32, whose lower half is what int16 would
have come to. An average is a sum that has wrapped around before it is divided, as of the other
integers."""
import torch
from torch.distributed import ReduceOp

NARROW = torch.int16
WIDE = torch.int32


def wide(tensor):
    return tensor.detach().to(WIDE, memory_format=torch.contiguous_format)


def reduced_by(op):
    """How it is reduced as int32."""
    return ReduceOp.SUM if op == ReduceOp.AVG else op


def narrow(result, op, size):
    """A result as int16."""
    result = result.to(NARROW)
    return torch.div(result, size, rounding_mode="trunc") if op == ReduceOp.AVG else result
