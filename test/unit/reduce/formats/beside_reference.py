#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Holds the codec in C++ to the numpy reference, test/reference/formats.py, bit for bit: the inputs
of the page's vectors, and numbers drawn from a seed at awkward counts, by every instruction set
that this CPU has.

usage: beside_reference.py PROGRAM      built from codec_player.cc, which says what it is asked"""

import os
import pathlib
import struct
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "reference"))
import formats  # noqa: E402

ISAS = ("scalar", "avx2", "avx512")
FORMATS = {"bf16": 1, "int8": 2}
DATATYPES = {"fp32": 0, "bf16": 3}
COUNTS = (0, 1, 2, 7, 31, 33, 255, 256, 257, 511, 700, 1279, 1280, 1281, 4447, 8704, 8705, 20001)
NAN = np.uint32(formats.NAN)
PART, RESULT, SUM, DECODE = range(4)


class Player:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, isa, action, how, datatype, count, arrays, lengths, divisor=1):
        """@return outputs of so many bytes, or None if the program refuses."""
        request = struct.pack("<7I", ISAS.index(isa), action, FORMATS[how], DATATYPES[datatype],
                              count, len(arrays), divisor)
        self.process.stdin.write(request + b"".join(arrays))
        self.process.stdin.flush()
        if self.read(4) == bytes(4):
            return None
        return [self.read(length) for length in lengths]

    def read(self, length):
        data = self.process.stdout.read(length)
        assert len(data) == length, "the program ended"
        return data

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def stored(values, datatype):
    """Bytes of fp32 values in the datatype."""
    if datatype == "bf16":
        return formats.round_to_bf16(values).astype("<u2").tobytes()
    return values.astype("<f4").tobytes()


def loaded(data, datatype):
    if datatype == "bf16":
        return formats.widen(np.frombuffer(data, "<u2"))
    return np.frombuffer(data, "<f4").copy()


def wire_bytes(how, count):
    return 2 * count if how == "bf16" else count + 4 * -(-count // formats.BLOCK)


def drawn(generator, count):
    """Blocks of numbers of all sizes; some have an infinity or a NaN, some are denormal."""
    exponents = generator.integers(0, 255, -(-count // 64)).repeat(64)[:count].astype(np.uint32)
    spread = generator.integers(0, 12, count, dtype=np.uint32)
    exponents = np.where(exponents > spread, exponents - spread, 0).astype(np.uint32)
    bits = generator.integers(0, 1 << 23, count, dtype=np.uint32) | exponents << np.uint32(23)
    bits |= generator.integers(0, 2, count, dtype=np.uint32) << np.uint32(31)
    if generator.integers(0, 4) == 0 and count:
        odd = np.array([0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF, 0x80000000], np.uint32)
        bits[generator.integers(0, count)] = odd[generator.integers(0, len(odd))]
    return bits.view(np.float32)


def canonical(values):
    values = np.array(values, np.float32)
    values.view(np.uint32)[np.isnan(values)] = NAN
    return values


class Checks:
    def __init__(self, player, isa):
        self.player, self.isa, self.made = player, isa, 0

    def same(self, got, wanted, *what):
        self.made += 1
        for name, one, other in zip(("first", "second", "third"), got, wanted):
            assert one == other, (f"{self.isa}: {what}: the {name} output differs from the "
                                  f"reference's: {one[:32].hex()}, {other[:32].hex()}")

    def part(self, how, datatype, members, residuals):
        count = len(residuals)
        arrays = [stored(values, datatype) for values in members]
        with np.errstate(all="ignore"):
            total = loaded(arrays[0], datatype)
            for data in arrays[1:]:
                total = (total + loaded(data, datatype)).astype(np.float32)
            total = (total + residuals).astype(np.float32)
        wire = formats.encode(total, how)
        wanted = [wire, stored(formats.decode(wire, how, count), datatype),
                  formats.residual(total, how).astype("<f4").tobytes()]
        got = self.player.ask(self.isa, PART, how, datatype, count,
                              arrays + [residuals.astype("<f4").tobytes()],
                              [len(data) for data in wanted])
        if got is None:
            return False
        self.same(got, wanted, "part", how, datatype, count, len(members))
        return True

    def results(self, how, datatype, parts, divisor):
        """Parts are the bytes that travel, `parts` the values that they are made of."""
        count = len(parts[0])
        arrays = [formats.encode(values, how) for values in parts]
        total = formats.fold(parts, how, 0, divisor, encodes_result=False)
        wire = formats.encode(total, how)
        wanted = [wire, stored(formats.decode(wire, how, count), datatype)]
        lengths = [len(data) for data in wanted]
        got = self.player.ask(self.isa, RESULT, how, datatype, count, arrays, lengths, divisor)
        self.same(got, wanted, "result", how, datatype, count, len(parts), divisor)
        got = self.player.ask(self.isa, SUM, how, datatype, count, arrays, lengths[1:], divisor)
        self.same(got, [stored(canonical(total), datatype)], "sum", how, datatype, count, divisor)

    def hostile(self, how, datatype, generator, count):
        wire = generator.integers(0, 256, wire_bytes(how, count), dtype=np.uint8).tobytes()
        odd = np.array([0x7F800000, 0xFF800000, 0x7FC12345, 1, 0x80000000, 0x7F7FFFFF], "<u4")
        if how == "int8" and count > 6 * formats.BLOCK:
            wire = odd.tobytes() + wire[odd.nbytes:]
        wanted = stored(formats.decode(wire, how, count), datatype)
        got = self.player.ask(self.isa, DECODE, how, datatype, count, [wire], [len(wanted)])
        self.same(got, [wanted], "hostile", how, datatype, count)

    def all(self, seed):
        """@return False if this CPU does not have the instructions."""
        generator = np.random.default_rng(seed)
        pairs = (("bf16", "fp32"), ("int8", "fp32"), ("int8", "bf16"))
        for how in FORMATS:
            for values in formats.ODD.values():
                zeros = np.full(len(values), -0.0, np.float32)  # x + -0 is x
                if not self.part(how, "fp32", [values], zeros):
                    return False
        for how, datatype in pairs:
            for count in COUNTS:
                for size in (1, 2, 5):
                    inputs = [drawn(generator, count) for _ in range(size)]
                    self.part(how, datatype, inputs, drawn(generator, count))
                    divisor = int(generator.integers(1, 65536)) if size > 1 else 1
                    self.results(how, datatype, inputs, divisor)
                self.hostile(how, datatype, generator, count)
        return True


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    seed = int(os.environ.get("GRADWIRE_TEST_SEED", "1"))
    print(f"GRADWIRE_TEST_SEED={seed}")
    for isa in ISAS:
        player = Player(sys.argv[1])
        checks = Checks(player, isa)
        has = checks.all(seed)
        player.end()
        print(f"{isa}: {checks.made} outputs as the reference has them" if has
              else f"{isa}: this CPU does not have it")
        assert has or isa != "scalar"
    return 0


if __name__ == "__main__":
    sys.exit(main())
