#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What gradwire's collectives have to give, bit for bit, in numpy: the numbers of
doc/architecture.md in the ring's order. Knows nothing of the C++ code. Run as a script it tests
itself against element-by-element arithmetic in plain Python and against results worked out by hand.

    expected = all_reduce(inputs, "bf16", "avg")

`inputs[rank][member]` are arrays of one length and of NUMPY_TYPES[datatype]; bf16 is held as its
bits in uint16, and `expected` is of the same type. Every member of every rank gets it."""

import struct
import sys

import numpy as np

NUMPY_TYPES = {
    "fp32": np.dtype("<f4"),
    "fp64": np.dtype("<f8"),
    "fp16": np.dtype("<f2"),
    "bf16": np.dtype("<u2"),
    "int8": np.dtype("i1"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "uint8": np.dtype("u1"),
}
REDOPS = ("sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "premul_sum")
_BITS = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
SEGMENT_ALIGNMENT_BYTES = 64

# The bits of a float type: unsigned type, canonical NaN.
_FLOAT_BITS = {
    "fp32": (np.uint32, 0x7FC00000),
    "fp64": (np.uint64, 0x7FF8000000000000),
    "fp16": (np.uint16, 0x7E00),
    "bf16": (np.uint16, 0x7FC0),
}


def redops_of(datatype):
    """@return the redops that elements of the datatype can be reduced by, without "premul_sum",
    which takes a factor of each process and is of floats."""
    return [redop for redop in REDOPS[:-1] if redop not in _BITS or datatype not in _FLOAT_BITS]


def segment_count(count, nranks, datatype):
    """Elements of every segment but the last ones, which may be short or empty."""
    per_alignment = SEGMENT_ALIGNMENT_BYTES // NUMPY_TYPES[datatype].itemsize
    share = -(-count // nranks)
    return -(-share // per_alignment) * per_alignment


def all_reduce(inputs, datatype, redop, factors=None):
    """@return the array that every member receives. Raises ValueError for inputs that do not fit
    together. `factors`: [rank][member], of "premul_sum"."""
    dtype = NUMPY_TYPES[datatype]
    if redop not in redops_of(datatype) and not (redop == "premul_sum" and factors and
                                                 datatype in _FLOAT_BITS):
        raise ValueError(f"redop {redop!r} is none of {redops_of(datatype)}")
    arrays = [[np.asarray(member) for member in members] for members in inputs]
    count = arrays[0][0].size
    for rank, members in enumerate(arrays):
        if not members:
            raise ValueError(f"rank {rank} has no members")
        for member, array in enumerate(members):
            if array.dtype != dtype or array.shape != (count,):
                raise ValueError(
                    f"rank {rank} member {member} is {array.dtype}{array.shape}, "
                    f"{datatype} needs {dtype}({count},)"
                )
    nranks = len(arrays)
    output = np.empty(count, dtype)
    length = segment_count(count, nranks, datatype)
    for segment in range(nranks):
        part = slice(min(segment * length, count), min((segment + 1) * length, count))
        output[part] = _fold(arrays, part, segment, datatype, redop, factors)
    return output


def reduce(inputs, datatype, redop, root, factors=None):
    """@return the array that process `root` (rank x members + member) receives. The fold ends at
    its rank, so it starts at the one after it."""
    first = root // len(inputs[0]) + 1
    return _fold(inputs, slice(None), first, datatype, redop, factors)


def reduce_to(inputs, datatype, redop, rank, factors=None):
    """@return the array that a process of `rank` receives, whatever the numbers of members."""
    return _fold(inputs, slice(None), rank + 1, datatype, redop, factors)


def reduce_scatter(inputs, datatype, redop, factors=None):
    """@return result[rank][member]: process p's block p. The fold of a block ends at its rank."""
    members = len(inputs[0])
    count = inputs[0][0].size // (len(inputs) * members)
    return [[_fold(inputs, slice(p * count, (p + 1) * count), rank + 1, datatype, redop,
                   factors)
             for p in range(rank * members, (rank + 1) * members)]
            for rank in range(len(inputs))]


def all_gather(inputs):
    """@return the array that every member receives: the inputs by rank, then by member."""
    return np.concatenate([array for members in inputs for array in members])


def _fold(arrays, part, first, datatype, redop, factors=None):
    """`part` of all arrays[rank][member], in ring order from rank `first` on."""
    nranks = len(arrays)
    divisor = sum(len(members) for members in arrays)
    partial = None
    with np.errstate(all="ignore"):
        for hop in range(nranks):
            rank = (first + hop) % nranks
            members = [array[part] for array in arrays[rank]]
            is_last = hop == nranks - 1
            values = members if partial is None else members + [partial]
            partial = _hop(values, datatype, redop, divisor if is_last else 1,
                           factors[rank] if factors else ())
    return partial


def _hop(values, datatype, redop, divisor, factors):
    """One rank's fold of `values` in their order, the first ones times their `factors`, rounded
    once."""
    divides = redop == "avg" and divisor != 1
    if len(values) == 1 and not divides and not factors:
        return values[0].copy()
    values = [_widen(value, datatype) for value in values]
    for at, factor in enumerate(factors):
        values[at] = values[at] * values[at].dtype.type(factor)
    accumulator = values[0]
    for value in values[1:]:
        accumulator = _combine(accumulator, value, redop)
    if divides:
        accumulator = _divide(accumulator, divisor)
    return _narrow(accumulator, datatype)


def _widen(array, datatype):
    if datatype == "fp16":
        return array.astype(np.float32)
    if datatype == "bf16":
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array


def _combine(a, b, redop):
    if redop in ("sum", "avg", "premul_sum"):
        return a + b  # Arrays of integers wrap.
    if redop == "prod":
        return a * b
    if redop in _BITS:
        return _BITS[redop](a, b)
    if a.dtype.kind != "f":
        return np.minimum(a, b) if redop == "min" else np.maximum(a, b)
    a_first = _order(a) <= _order(b)
    chosen = np.where(a_first == (redop == "min"), a, b)
    chosen[np.isnan(a) | np.isnan(b)] = np.nan
    return chosen


def _order(array):
    """Integers in the order of the floats, -0 just below +0."""
    signed = array.view(np.int32 if array.dtype.itemsize == 4 else np.int64)
    return np.where(signed < 0, np.bitwise_xor(signed, np.iinfo(signed.dtype).max), signed)


def _divide(accumulator, divisor):
    if accumulator.dtype.kind == "f":
        return accumulator / accumulator.dtype.type(divisor)
    wide = accumulator.astype(np.int64)
    quotient = wide // divisor  # Rounds down; toward zero is one more where that cut a negative.
    quotient += (wide < 0) & (quotient * divisor != wide)
    return quotient.astype(accumulator.dtype)


def _narrow(accumulator, datatype):
    if datatype not in _FLOAT_BITS:
        return accumulator
    bits_type, canonical_nan = _FLOAT_BITS[datatype]
    if datatype == "bf16":
        bits = accumulator.view(np.uint32).astype(np.uint64)
        kept = bits >> np.uint64(16)
        rest = bits & np.uint64(0xFFFF)
        up = (rest > 0x8000) | ((rest == 0x8000) & (kept % np.uint64(2) == 1))
        narrowed = (kept + up).astype(np.uint16)
    else:
        narrowed = accumulator.astype(NUMPY_TYPES[datatype]).view(bits_type).copy()
    narrowed[np.isnan(accumulator)] = canonical_nan
    return narrowed.view(NUMPY_TYPES[datatype])


# The self-test.


def _to_float(bits, datatype):
    if datatype == "bf16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    code, wide = {"fp32": ("<f", "<I"), "fp64": ("<d", "<Q"), "fp16": ("<e", "<H")}[datatype]
    return struct.unpack(code, struct.pack(wide, bits))[0]


def _round_float(value, code):
    """`value`, a Python float, rounded to the struct type `code`."""
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _plain_bits(value, datatype):
    if value != value:
        return _FLOAT_BITS[datatype][1]
    if datatype == "fp16":
        return struct.unpack("<H", struct.pack("<e", _round_float(value, "<e")))[0]
    if datatype == "fp64":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if datatype == "fp32":
        return bits
    candidates = (bits >> 16, (bits >> 16) + 1)
    distances = [abs((candidate << 16) - bits) for candidate in candidates]
    if distances[0] == distances[1]:
        return candidates[candidates[0] % 2]
    return candidates[distances.index(min(distances))]


def _plain_hop(values, datatype, redop, divisor, factors):
    """_hop for one element: bits in (integers as numbers), bits out."""
    divides = redop == "avg" and divisor != 1
    if len(values) == 1 and not divides and not factors:
        return values[0]
    if datatype not in _FLOAT_BITS:
        info = np.iinfo(NUMPY_TYPES[datatype])
        result = values[0]
        for value in values[1:]:
            result = {
                "min": min,
                "max": max,
                "prod": int.__mul__,
                "band": int.__and__,
                "bor": int.__or__,
                "bxor": int.__xor__,
            }.get(redop, int.__add__)(result, value)
            result = (result - int(info.min)) % (1 << info.bits) + int(info.min)
        if divides:
            result = abs(result) // divisor * (-1 if result < 0 else 1)
        return result
    code = "<d" if datatype == "fp64" else "<f"
    floats = [_to_float(value, datatype) for value in values]
    for at, factor in enumerate(factors):
        floats[at] = _round_float(floats[at] * _round_float(factor, code), code)
    result = floats[0]
    for value in floats[1:]:
        if result != result or value != value:
            result = float("nan")
        elif redop in ("min", "max"):
            # Python compares -0.0 == 0.0: the sign decides among zeros.
            pair = sorted((result, value), key=lambda x: (x, struct.pack(">d", x)[0] < 0x80))
            result = pair[0] if redop == "min" else pair[1]
        else:
            result = _round_float(result * value if redop == "prod" else result + value, code)
    if divides:
        result = _round_float(result / divisor, code)
    return _plain_bits(result, datatype)


def _as_plain(array, datatype):
    if datatype in _FLOAT_BITS:
        array = array.view(_FLOAT_BITS[datatype][0])
    return [int(value) for value in array]


def _plain_all_reduce(inputs, datatype, redop, factors):
    plain = [[_as_plain(array, datatype) for array in members] for members in inputs]
    nranks, count = len(plain), len(plain[0][0])
    divisor = sum(map(len, plain))
    length = segment_count(count, nranks, datatype)
    output = []
    for i in range(count):
        order = [(i // length + hop) % nranks for hop in range(nranks)]
        values = []
        for rank in order:
            # A rank's members first, then what came from the ranks before it.
            values = [array[i] for array in plain[rank]] + values
            values = [_plain_hop(values, datatype, redop, divisor if rank == order[-1] else 1,
                                 factors[rank] if factors else ())]
        output.append(values[0])
    return output


def _awkward(random, datatype, count):
    dtype = NUMPY_TYPES[datatype]
    array = np.frombuffer(random.bytes(count * dtype.itemsize), dtype).copy()
    if datatype in _FLOAT_BITS:
        bits_type, nan = _FLOAT_BITS[datatype]
        info = np.iinfo(bits_type)
        sign = info.max // 2 + 1
        one = {"fp32": 0x3F800000, "fp64": 0x3FF0000000000000, "fp16": 0x3C00, "bf16": 0x3F80}
        infinity = nan & ~(nan & -nan)
        special = [0, 1, one[datatype], one[datatype] + 1, infinity - 1, infinity, nan - 1, nan]
        special += [value | sign for value in special]
        pool = np.array(special, bits_type).view(dtype)
    else:
        info = np.iinfo(dtype)
        pool = np.array([0, 1, info.min, info.max, info.max - 1], dtype)
    where = random.random(count) < 0.4
    array[where] = random.choice(pool.view(f"u{dtype.itemsize}"), count).view(dtype)[where]
    return array


def _check_by_hand():
    def bits(datatype, redop, *ranks):
        arrays = [
            [np.array([value], _FLOAT_BITS[datatype][0]).view(NUMPY_TYPES[datatype])]
            for value in ranks
        ]
        return _as_plain(all_reduce(arrays, datatype, redop), datatype)[0]

    assert segment_count(100, 3, "fp32") == 48 and segment_count(1, 2, "int8") == 64
    assert bits("fp16", "sum", 0x7BFF, 0x4BFF) == 0x7BFF  # 65504 + 15.99 stays
    assert bits("fp16", "sum", 0x7BFF, 0x4C00) == 0x7C00  # 65504 + 16 is the tie: infinity
    assert bits("fp16", "sum", 0x0001, 0x0001) == 0x0002  # denormals are honoured
    assert bits("bf16", "sum", 0x3F80, 0x3B80) == 0x3F80  # 1 + 2^-8: a tie, to even
    assert bits("bf16", "sum", 0x3F81, 0x3B80) == 0x3F82
    assert bits("bf16", "prod", 0x0001, 0x3F80) == 0x0001
    assert bits("fp32", "min", 0x00000000, 0x80000000) == 0x80000000
    assert bits("fp32", "max", 0x80000000, 0x00000000) == 0x00000000
    assert bits("fp32", "max", 0xFFC12345, 0x3F800000) == 0x7FC00000
    assert bits("fp32", "sum", 0x7F800000, 0xFF800000) == 0x7FC00000
    assert bits("fp32", "avg", 0xFFC12345) == 0xFFC12345  # one rank, one member: bits copied
    int8 = [[np.array([100, -7], np.int8)], [np.array([100, 0], np.int8)]]
    assert list(all_reduce(int8, "int8", "avg")) == [-28, -3]  # -56 / 2; toward zero
    # The order shows: at rank 0 first, 1 is lost beside 2^24; segment 1 starts at rank 1.
    ranks = [np.full(32, value, np.float32) for value in (2.0**24, 1.0, 1.0)]
    ranks = [[array] for array in ranks]
    result = all_reduce(ranks, "fp32", "sum")
    assert (result[:16] == 2.0**24).all() and (result[16:] == 2.0**24 + 2).all()
    # 1 + 1 before 2^24 where rank 1 begins, so at root 0; 2^24 + 1 first at 1 and 2.
    assert [reduce(ranks, "fp32", "sum", root)[0] - 2.0**24 for root in range(3)] == [2, 0, 0]
    assert (reduce(ranks, "fp32", "avg", 0) == np.float32(2.0**24 + 2) / np.float32(3)).all()
    blocks = reduce_scatter([[array[:6]] for (array,) in ranks], "fp32", "sum")
    assert [list(block - 2.0**24) for (block,) in blocks] == [[2, 2], [0, 0], [0, 0]]
    two = [[np.array([1, 2]), np.array([3, 4])], [np.array([5, 6]), np.array([7, 8])]]
    assert list(all_gather(two)) == [1, 2, 3, 4, 5, 6, 7, 8]


def self_test():
    _check_by_hand()
    random = np.random.default_rng(2026)
    shapes = ((1, 1, 9), (1, 3, 40), (2, 1, 150), (3, 2, 200), (5, 1, 7))
    for datatype in NUMPY_TYPES:
        premul = ["premul_sum"] if datatype in _FLOAT_BITS else []
        for redop in redops_of(datatype) + premul:
            for nranks, members, count in shapes:
                inputs = [
                    [_awkward(random, datatype, count) for _ in range(members)]
                    for _ in range(nranks)
                ]
                factors = None
                if redop == "premul_sum":
                    factors = [[float(random.normal()) for _ in part] for part in inputs]
                got = _as_plain(all_reduce(inputs, datatype, redop, factors), datatype)
                want = _plain_all_reduce(inputs, datatype, redop, factors)
                if got != want:
                    i = next(i for i in range(count) if got[i] != want[i])
                    print(
                        f"{datatype} {redop} nranks {nranks} members {members} count {count} "
                        f"element {i}: numpy {got[i]:#x}, plain {want[i]:#x}"
                    )
                    return 1
    print(f"{len(NUMPY_TYPES)} datatypes, {len(REDOPS)} redops: numpy and plain Python agree")
    return 0


if __name__ == "__main__":
    sys.exit(self_test())
