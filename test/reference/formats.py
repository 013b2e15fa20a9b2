#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The wire formats of doc/protocol/formats.md in numpy, bit for bit. Knows nothing of the C++ code.

    wire = encode(values, "int8")             the bytes that one chunk of these values carries
    values = decode(wire, "int8", count)      what everybody makes of them
    result = all_reduce(inputs, "int8")       what every process gets, of one member a rank

`values` are fp32, from a border of blocks on. Run as a script it tests itself against exact
arithmetic in plain Python, and the vectors of the page against itself; --vectors prints those."""

import fractions
import pathlib
import re
import struct
import sys

import numpy as np

BLOCK = 256
FORMATS = ("bf16", "int8")
NAN = 0x7FC00000
INFINITE = 0x7F800000
SCALE_MIN = np.uint32(0x00800000).view(np.float32)  # 2^-126
SCALE_MAX = np.uint32(0x7C010203).view(np.float32)  # the largest of which 127 times is finite
PAGE = pathlib.Path(__file__).resolve().parents[2] / "doc/protocol/formats.md"


def round_to_bf16(values):
    """bf16 as bits in uint16: to nearest even, a NaN canonical."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(INFINITE)
    return np.where(is_nan, np.uint32(NAN >> 16), rounded).astype(np.uint16)


def widen(bf16):
    return (np.asarray(bf16, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _blocks(values, fill):
    """[blocks][256], the last filled up."""
    count = -(-values.size // BLOCK)
    padded = np.full(count * BLOCK, fill, values.dtype)
    padded[:values.size] = values
    return padded.reshape(count, BLOCK)


def scales_of(values):
    """The scale of each block: fp32 [blocks]."""
    bits = _blocks(np.ascontiguousarray(values, np.float32).view(np.uint32), 0)
    absmax = (bits & np.uint32(0x7FFFFFFF)).max(axis=1)
    with np.errstate(all="ignore"):
        scales = absmax.view(np.float32) / np.float32(127)
    scales = np.minimum(np.maximum(scales, SCALE_MIN), SCALE_MAX).astype(np.float32)
    return np.where(absmax >= INFINITE, np.uint32(NAN).view(np.float32), scales).astype(np.float32)


def quantize(values, scales):
    """q, int8 [count]."""
    with np.errstate(all="ignore"):
        inverse = (np.float32(1) / scales).astype(np.float32)
        product = (_blocks(np.asarray(values, np.float32), np.float32(0)) * inverse[:, None])
        rounded = np.rint(product.astype(np.float32))
    rounded[np.isnan(scales)] = 0
    return rounded.astype(np.int8).reshape(-1)[:len(values)]


def encode(values, wire_format):
    values = np.ascontiguousarray(values, np.float32)
    if wire_format == "bf16":
        return round_to_bf16(values).astype("<u2").tobytes()
    scales = scales_of(values)
    return scales.astype("<f4").tobytes() + quantize(values, scales).tobytes()


def decode(wire, wire_format, count):
    """fp32 [count]. Raises ValueError if the bytes are not so many."""
    if wire_format == "bf16":
        if len(wire) != 2 * count:
            raise ValueError(f"{count} elements of bf16 take {2 * count} bytes, not {len(wire)}")
        return widen(np.frombuffer(wire, "<u2"))
    blocks = -(-count // BLOCK)
    if len(wire) != 4 * blocks + count:
        raise ValueError(f"{count} elements of int8 take {4 * blocks + count} bytes, "
                         f"not {len(wire)}")
    scales = np.frombuffer(wire[:4 * blocks], "<f4").repeat(BLOCK)[:count]
    q = np.frombuffer(wire[4 * blocks:], np.int8)
    with np.errstate(all="ignore"):
        values = q.astype(np.float32) * scales
    values = np.asarray(values, np.float32)
    values.view(np.uint32)[np.isnan(values)] = NAN  # of a NaN, and of 0 times an infinite scale
    return values


def round_trip(values, wire_format):
    return decode(encode(values, wire_format), wire_format, len(values))


def residual(values, wire_format):
    """What encoding loses, for the next step: 0 where that is no finite number."""
    with np.errstate(all="ignore"):
        lost = (values - round_trip(values, wire_format)).astype(np.float32)
    lost[~np.isfinite(lost)] = 0
    return lost


def fold(inputs, wire_format, first, divisor=1, encodes_result=True):
    """One run of elements, from a border of blocks on: `inputs[rank]` are what each rank's members
    come to in fp32. @return what is stored."""
    with np.errstate(all="ignore"):
        total = None
        for at in range(len(inputs)):
            part = round_trip(inputs[(first + at) % len(inputs)], wire_format)
            total = part if total is None else (total + part).astype(np.float32)
        if divisor != 1:
            total = (total / np.float32(divisor)).astype(np.float32)
    total.view(np.uint32)[np.isnan(total)] = NAN
    return round_trip(total, wire_format) if encodes_result else total


def all_reduce(inputs, wire_format, divisor=1):
    """Inputs of one member a rank, fp32. The fold of each of the ring's segments begins at its
    rank; blocks count from the first element of the op, whatever segments are."""
    count, nranks = len(inputs[0]), len(inputs)
    share = -(-(-(-count // nranks)) // 16) * 16
    parts = [round_trip(values, wire_format) for values in inputs]
    total = np.empty(count, np.float32)
    with np.errstate(all="ignore"):
        for segment in range(nranks):
            span = slice(min(segment * share, count), min((segment + 1) * share, count))
            run = parts[segment][span].copy()
            for at in range(1, nranks):
                run = (run + parts[(segment + at) % nranks][span]).astype(np.float32)
            total[span] = run / np.float32(divisor) if divisor != 1 else run
    total.view(np.uint32)[np.isnan(total)] = NAN
    return round_trip(total, wire_format)


# The page's vectors: inputs as bits of fp32, or as a rule.
def ramp(count, step):
    """0, step, -2 step, 3 step, ... of as many elements."""
    signs = np.where(np.arange(count) % 2 == 0, -1, 1).astype(np.float32)
    return (np.arange(count, dtype=np.float32) * np.float32(step) * signs).astype(np.float32)


def from_bits(*words):
    return np.array(words, np.uint32).view(np.float32)


ODD = {
    "zeros": from_bits(0x00000000, 0x80000000),
    "ones": from_bits(0x3F800000, 0xBF800000, 0x3F000000),
    "ties": from_bits(0x42FE0000, 0x3F000000, 0x3FC00000, 0xC0200000),  # 127, 0.5, 1.5, -2.5
    "largest": from_bits(0x7F7FFFFF, 0xFF7FFFFF, 0x7F000000),
    "denormals": from_bits(0x00000001, 0x807FFFFF, 0x00400000),
    "least normal": from_bits(0x00800000, 0x80800000),
    "127 least": from_bits(0x047E0000, 0x00C00000),  # 127 x 2^-125, 1.5 x 2^-126
    "infinity": from_bits(0x7F800000, 0x3F800000),
    "NaN": from_bits(0xFFC12345, 0x3F800000, 0x7F800001),
    "bf16 ties": from_bits(0x3F808000, 0x3F818000, 0x3F808001, 0x7F7F8000),
    "ramp of 255": ramp(255, 1 / 3),
    "ramp of 257": ramp(257, 1 / 3),
    "ramp of 1280": ramp(1280, 1e-3),
}


def shown(wire):
    """Short ones whole; of long ones the first 16 bytes, and a checksum of all."""
    if len(wire) <= 32:
        return f"`{wire.hex()}`"
    return f"`{wire[:16].hex()}`…, {len(wire)} bytes, `{fletcher(wire):08x}`"


def fletcher(data):
    """Fletcher-32 of the bytes: two sums modulo 65535."""
    low = high = 0
    for byte in data:
        low = (low + byte) % 65535
        high = (high + low) % 65535
    return high << 16 | low


def vectors():
    """Rows of the page's table."""
    for name, values in ODD.items():
        bits = values.view(np.uint32)
        given = f"`{' '.join(f'{b:08x}' for b in bits)}`" if len(bits) <= 4 else "see above"
        for wire_format in FORMATS:
            yield (f"| {name} | {given} | {wire_format} | {shown(encode(values, wire_format))} | "
                   f"{shown(round_trip(values, wire_format).astype('>f4').tobytes())} |")


# Tests.
def exact(bits):
    return fractions.Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])


def nearest_float(value):
    """RN(value) of a fraction, by trying its two neighbors."""
    guess = np.float32(float(value))  # within one step: a double is rounded twice
    tries = [np.nextafter(guess, np.float32(-np.inf)), guess,
             np.nextafter(guess, np.float32(np.inf))]
    tries = [t for t in tries if np.isfinite(t)]
    even = [(abs(fractions.Fraction(float(t)) - value), int(t.view(np.uint32)) & 1, t)
            for t in tries]
    return min(even, key=lambda e: e[:2])[2]


def slow_int8(values):
    """One block, in exact arithmetic that rounds where the page says so. @return scale, q."""
    absmax = max(int(b) & 0x7FFFFFFF for b in values.view(np.uint32))
    if absmax >= INFINITE:
        return NAN, [0] * len(values)
    scale = nearest_float(exact(absmax) / 127)
    scale = min(max(scale, SCALE_MIN), SCALE_MAX)
    inverse = nearest_float(1 / fractions.Fraction(float(scale)))
    q = []
    for value in values:
        product = fractions.Fraction(float(value)) * fractions.Fraction(float(inverse))
        product = nearest_float(product)
        q.append(round(fractions.Fraction(float(product))))  # Python rounds halves to even
    return int(scale.view(np.uint32)), q


def samples(generator):
    """Blocks of all sizes of numbers."""
    yield from (v for v in ODD.values() if len(v) <= BLOCK)
    for exponent in (0, 1, 2, 60, 120, 127, 128, 200, 250, 253, 254):
        for count in (1, 3, 255, 256):
            bits = generator.integers(0, 1 << 23, count, dtype=np.uint32)
            spread = generator.integers(0, min(exponent, 12) + 1, count, dtype=np.uint32)
            bits |= (np.uint32(exponent) - spread) << np.uint32(23)
            yield (bits | generator.integers(0, 2, count, dtype=np.uint32) << np.uint32(31)).view(
                np.float32)


def check_int8(values):
    scale, q = slow_int8(values)
    wire = encode(values, "int8")
    assert struct.unpack("<I", wire[:4])[0] == scale, (values, scale)
    assert list(np.frombuffer(wire[4:], np.int8)) == q, (values, q)
    assert all(-127 <= n <= 127 for n in q)
    result = decode(wire, "int8", len(values))
    if scale == NAN:
        assert (result.view(np.uint32) == NAN).all()
        return
    assert np.isfinite(result).all()
    half = exact(scale) / 2
    for value, other in zip(values, result):
        lost = abs(fractions.Fraction(float(value)) - fractions.Fraction(float(other)))
        # Four roundings of 2^-24 or 2^-23 each, of at most 127 scales.
        assert lost <= half * (1 + fractions.Fraction(1, 1 << 13)), (value, other, half)


def check_bf16(values):
    for value, other in zip(values.view(np.uint32), round_to_bf16(values)):
        value, other = int(value), int(other)
        if value & 0x7FFFFFFF > INFINITE:
            assert other == 0x7FC0
        elif value & 0x7FFFFFFF == INFINITE:
            assert other == value >> 16
        else:
            below = value & 0xFFFF0000
            twice = 2 * (value & 0xFFFF)
            up = twice > 0x10000 or twice == 0x10000 and below >> 16 & 1
            assert other == (below >> 16) + up, (hex(value), hex(other))


def check_bound(generator):
    """The error of a sum is what the page says: half the scales of all ranks and of the result."""
    for nranks in (2, 3, 7):
        for size in (1e-3, 1.0, 1e30):
            inputs = [(generator.standard_normal(700) * size).astype(np.float32)
                      for _ in range(nranks)]
            truth = sum(values.astype(np.float64) for values in inputs)
            result = all_reduce(inputs, "int8")
            halves = sum(scales_of(values).astype(np.float64) for values in inputs) / 2
            halves = halves.repeat(BLOCK)[:700]
            sums = sum(round_trip(values, "int8").astype(np.float64) for values in inputs)
            own = scales_of(sums.astype(np.float32)).astype(np.float64).repeat(BLOCK)[:700] / 2
            largest = sum(np.abs(values).max() for values in inputs)
            bound = (halves + own) * (1 + 2.0**-13) + nranks * largest * 2.0**-23
            assert (np.abs(result - truth) <= bound).all()


def check_borders(generator):
    """Chunks that end on blocks give the bits of the whole, however it is cut."""
    values = generator.standard_normal(5 * BLOCK + 77).astype(np.float32)
    whole = round_trip(values, "int8")
    for blocks in (1, 2, 5, 34):
        cut = [round_trip(values[at:at + blocks * BLOCK], "int8")
               for at in range(0, len(values), blocks * BLOCK)]
        assert (np.concatenate(cut).view(np.uint32) == whole.view(np.uint32)).all()
    assert encode(values[:0], "int8") == b"" and len(decode(b"", "int8", 0)) == 0
    assert len(encode(values[:5 * BLOCK], "int8")) == 1300
    assert len(encode(np.zeros(34 * BLOCK, np.float32), "int8")) == 8840


def check_hostile():
    """Scales that no encoder makes decode by the same rule, and every NaN has the same bits."""
    q = bytes([0, 1, 0x80, 0x81])
    for scale, wanted in ((0x7F800000, (NAN, 0x7F800000, 0xFF800000, 0xFF800000)),
                          (0xFF800000, (NAN, 0xFF800000, 0x7F800000, 0x7F800000)),
                          (0xFFC12345, (NAN, NAN, NAN, NAN)),
                          (0xBF800000, (0x80000000, 0xBF800000, 0x43000000, 0x42FE0000)),
                          (0x00000001, (0, 1, 0x80000080, 0x8000007F))):
        values = decode(struct.pack("<I", scale) + q, "int8", len(q))
        assert tuple(int(b) for b in values.view(np.uint32)) == wanted, (hex(scale), values)


def check_residual():
    """A step that overflows leaves nothing behind it: the next part is that of its input."""
    ones = np.arange(1, 5, dtype=np.float32)
    for wire_format in FORMATS:
        for odd in (np.inf, np.nan, 3.4e38):
            values = ones.copy()
            values[0] = odd
            lost = residual(values, wire_format)
            assert np.isfinite(lost).all(), (wire_format, odd, lost)
            assert np.isfinite(round_trip(ones + lost, wire_format)).all()
        lost = residual(ones, wire_format)
        assert (lost == ones - round_trip(ones, wire_format)).all()


def check_page():
    page = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^\| [^|]+ \| [^|]+ \| (?:bf16|int8) \| .*\|$", page, re.M)
    wanted = list(vectors())
    for row in wanted:
        assert row in found, f"{PAGE.name} lacks: {row}"
    assert len(found) == len(wanted), f"{PAGE.name} has {len(found)} vectors, not {len(wanted)}"


def main():
    if "--vectors" in sys.argv[1:]:
        print("\n".join(vectors()))
        return 0
    generator = np.random.default_rng(1)
    assert 127 * exact(0x7C010203) < (1 << 128) - (1 << 103)  # it rounds to what is finite
    assert 127 * exact(0x7C010204) >= (1 << 128) - (1 << 103)
    blocks = 0
    for values in samples(generator):
        check_int8(values)
        check_bf16(values)
        blocks += 1
    check_bound(generator)
    check_borders(generator)
    check_hostile()
    check_residual()
    check_page()
    print(f"{blocks} blocks, {len(list(vectors()))} vectors of {PAGE.name}: right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
