#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Shares of owners (doc/protocol/tiles.md, Owners and shares) in exact fractions, for the test of
lib/collective/tiles/tile_shares.h.

`tile_shares.py make` prints the test's vectors. Without it, they are compared with what is in the
sources.
"""

import math
import pathlib
import sys
from fractions import Fraction

VECTORS = pathlib.Path(__file__).parents[1] / "unit/collective/tiles/tile_shares_vectors.h"
UNITS = (1, 7, 1000, 2**20 + 1, 2**42 - 1)


def owned(rate, has_members, n, time):
    """How much of an op a rank can sum in a time."""
    if not has_members:
        return rate * time / n
    return max(Fraction(0), (rate * time - 1) / (n - 2))


def shares(rates, n):
    """In steps of 2^-32, of the first n ranks with members and of those behind them without."""
    def all_owned(steps):
        time = Fraction(steps, 2**16) / max(rates)
        return [owned(rate, rank < n, n, time) for rank, rate in enumerate(rates)]

    short, enough = 0, 1
    while sum(all_owned(enough)) < 1:
        short, enough = enough, 2 * enough
    while enough - short > 1:
        middle = (short + enough) // 2
        if sum(all_owned(middle)) >= 1:
            enough = middle
        else:
            short = middle
    return [math.floor(share * 2**32) for share in all_owned(enough)]


def begins(parts, units):
    return [math.floor(Fraction(units * sum(parts[:i]), sum(parts))) for i in range(len(parts))]


def digest(values):
    """So that 1,000 ranks need one number."""
    total = 0
    for value in values:
        total = (total * 0x9e3779b97f4a7c15 + value) % 2**64
    return total


def many(count):
    """Rates that the test makes likewise."""
    return [10 * (1 + (7919 * i * i + 13 * i) % 40) for i in range(count)]


def braced(values):
    return "{" + ", ".join(str(value) for value in values) + "}"


SMALL = (
    (4, [100] * 6),
    (4, [10, 25, 10, 40]),
    (4, [100, 100, 100, 1, 400]),
    (3, [2**32 - 1, 1, 7]),
    (3, [1, 1, 1, 1, 1, 1]),
    (5, [10, 20, 40, 100, 100, 400, 25]),
    (3, [1, 1, 1, 1000]),
    (9, [10, 10, 10, 10, 10, 10, 10, 10, 11]),
)
LARGE = ((1000, 1000), (1000, 1024), (64, 1000), (3, 1024))


def vectors():
    lines = ["// SPDX-License-Identifier: BSD-3-Clause",
             "// Made by `test/reference/tile_shares.py make`, in exact fractions. Not by hand.",
             "#pragma once", "", "#include <array>", "#include <cstdint>", "#include <vector>", "",
             "namespace gradwire::test {", "",
             "struct ShareVector {", "  std::uint16_t nranks;",
             "  std::vector<std::uint32_t> rates;",
             "  std::vector<std::uint64_t> shares;",
             "  std::vector<std::uint64_t> begins;  ///< digests, by kShareUnits", "};",
             "/// Of many ranks, by digests; rate i is 10 x (1 + ((7919 i + 13) i mod 40)).",
             "struct LargeShareVector {", "  std::uint16_t nranks;", "  std::uint16_t all_ranks;",
             "  std::uint64_t shares;", "  std::uint64_t begins;  ///< of the last of kShareUnits",
             "};", "", "// clang-format off",
             f"inline constexpr std::array<std::uint64_t, {len(UNITS)}> kShareUnits = {{",
             "    " + ", ".join(f"{u}u" for u in UNITS) + "};",
             "inline const std::vector<ShareVector> kShareVectors = {"]
    for n, rates in SMALL:
        parts = shares(rates, n)
        lines.append(f"    {{{n}, {braced(f'{r}u' for r in rates)},")
        for values in (parts, [digest(begins(parts, u)) for u in UNITS]):
            lines.append("     {" + ",\n      ".join(f"{value}u" for value in values) + "},")
        lines.append("    },")
    lines += ["};", "inline const std::vector<LargeShareVector> kLargeShareVectors = {"]
    for n, count in LARGE:
        parts = shares(many(count), n)
        last = digest(begins(parts, UNITS[-1]))
        lines.append(f"    {{{n}, {count}, {digest(parts)}u, {last}u}},")
    lines += ["};", "// clang-format on", "", "}  // namespace gradwire::test", ""]
    return "\n".join(lines)


def print_or_compare(made, header):
    """As the command line says. @return whether it was compared; it ends if they differ."""
    if sys.argv[1:] == ["make"]:
        print(made, end="")
        return False
    if made != header.read_text(encoding="utf-8"):
        sys.exit(f"{header} is not what {sys.argv[0]} makes")
    return True


if __name__ == "__main__":
    if print_or_compare(vectors(), VECTORS):
        # The page's example: each host 3/10, each rank 1/10.
        ours = shares([100] * 6, 4)
        assert all(abs(Fraction(y, sum(ours)) - Fraction(part, 10)) < Fraction(1, 2**14)
                   for y, part in zip(ours, (1, 1, 1, 1, 3, 3))), ours
