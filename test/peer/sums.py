# SPDX-License-Identifier: BSD-3-Clause
"""What two ranks' values fold to, and what a whole group's do, in the order that doc/protocol
gives. Values are numpy arrays; bf16 lies in uint16."""

import numpy as np

from . import wire

KINDS = {"fp32": "<f4", "fp64": "<f8", "fp16": "<f2", "bf16": "<u2", "int8": "i1",
         "int32": "<i4", "int64": "<i8", "uint8": "u1"}
SEGMENT_BYTES = 64
_FOLDS = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum,
          "prod": np.multiply, "band": np.bitwise_and, "bor": np.bitwise_or,
          "bxor": np.bitwise_xor}


def _wide(values, datatype):
    if datatype == "bf16":
        return (values.astype("<u4") << np.uint32(16)).view("<f4")
    return values.astype("<f4") if datatype == "fp16" else values


def _narrow(values, datatype):
    if datatype != "bf16":
        return values.astype(KINDS[datatype])
    bits = values.view("<u4").astype("<u8")
    # To nearest, of two that are as near to the even one.
    return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype("<u2")


def fold(datatype, redop, own, came, divisor=1):
    """@param divisor of avg: processes in the last fold, else 1. Integers are divided toward
    zero."""
    result = _FOLDS[redop](_wide(own, datatype), _wide(came, datatype))
    if redop == "avg" and divisor > 1:
        if result.dtype.kind == "f":
            result = result / result.dtype.type(divisor)
        else:
            result = np.trunc(result.astype("f8") / divisor)
    return _narrow(result, datatype)


def segment_elements(count, parts, width):
    """Of one of the parts of so many elements, rounded up to 64 bytes."""
    share = -(-count // parts) * width
    return -(-share // SEGMENT_BYTES) * SEGMENT_BYTES // width


def fold_from(inputs, first, datatype, redop):
    """@param inputs an array of each rank. @return their fold in the order of ranks from the rank
    `first` on, rounded after each."""
    nranks = len(inputs)
    total = inputs[first % nranks]
    for i in range(1, nranks):
        total = fold(datatype, redop, inputs[(first + i) % nranks], total,
                     nranks if i == nranks - 1 else 1)
    return total


def all_reduce(inputs, datatype, redop):
    """@return what every rank gets."""
    count = len(inputs[0])
    length = segment_elements(count, len(inputs), np.dtype(KINDS[datatype]).itemsize)
    parts = [fold_from([values[s * length:(s + 1) * length] for values in inputs], s, datatype,
                       redop) for s in range(len(inputs))]
    return np.concatenate(parts)


def of_call(call, inputs):
    """@param call a calls.Call; inputs of each rank, None where it gives nothing. @return what each
    rank gets, None where that is nothing."""
    ranks = range(len(inputs))
    datatype, redop = call.datatype, call.redop
    if call.collective == wire.ALL_REDUCE:
        return [all_reduce(inputs, datatype, redop)] * len(inputs)
    if call.collective == wire.REDUCE:
        total = fold_from(inputs, call.root + 1, datatype, redop)
        return [total if rank == call.root else None for rank in ranks]
    if call.collective == wire.BROADCAST:
        return [inputs[call.root] for rank in ranks]
    if call.collective == wire.ALL_GATHER:
        return [np.concatenate(inputs) for rank in ranks]
    if call.collective == wire.REDUCE_SCATTER:
        cut = [values.reshape(len(inputs), -1) for values in inputs]
        return [fold_from([values[rank] for values in cut], rank + 1, datatype, redop)
                for rank in ranks]
    return [None for rank in ranks]
