#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the ring and tiles take by the model of doc/protocol/tiles.md, The choice, for the test of
lib/collective/shapes/tile_costs.h.

`tile_costs.py make` prints the test's vectors. Without it, they are compared with what is in the
sources.
"""

import pathlib

import tile_shares

VECTORS = pathlib.Path(__file__).parents[1] / "unit/collective/tiles/tile_costs_vectors.h"
SIZES = (1, 2**16 + 4, 2**20, 10**8, 2**47)
PAYLOADS = (64, 8896)
PASSES = (2, 1, 1)  # of an all-reduce, a reduce-scatter, an all-gather


def ceil(a, b):
    return -(-a // b)


class Group:
    def __init__(self, g_ns, c_ps, l_ns, lanes, n, rates):
        self.g, self.c, self.hop = 1000 * g_ns, c_ps, 1000 * l_ns + 2000 * g_ns
        self.lanes, self.n, self.rates = lanes, n, rates
        self.slowest = min(rates[:n])
        self.shares = None
        if len(rates) > n or len(set(rates)) > 1:
            self.shares = tile_shares.shares(rates, n) if n > 2 else [1] * len(rates)

    def ring(self, passes, size, payload):
        sent = size * passes * (self.n - 1) // self.n
        cores = 2 * self.g * ceil(sent, payload) + passes * size * self.c
        times = passes * (self.n - 1) * self.hop, max(
            sent * 80000 // self.slowest, cores // self.lanes)
        return max(times) + min(times) // 4

    def tiles(self, passes, size, payload):
        sent = size * passes * (self.n - 1) // self.n
        wire = sent * 80000 // self.slowest
        if passes == 2:
            wire = self.busiest(size)
        pieces = max(ceil(sent, payload), passes * (self.n - 1))
        words = 8 * (self.n - 1)
        packets = 2 * pieces + words * max(1, ceil(pieces, words))
        cores = self.g * packets + 7 * size * passes * self.c // 4
        return (5 if passes == 2 else 3) * self.hop + max(wire, cores // self.lanes)

    def busiest(self, size):
        n = self.n
        if self.shares is None:
            return size * 2 * (n - 1) * 80000 // (n * self.slowest)
        whole = sum(self.shares)
        return max(
            size * (whole + (n - 2) * share if rank < n else n * share) * 80000 // (whole * rate)
            for rank, (share, rate) in enumerate(zip(self.shares, self.rates)))


GROUPS = (
    (250, 100, 5000, 1, 2, [1000] * 2),
    (250, 100, 5000, 4, 64, [1000] * 64),
    (250, 100, 5000, 2, 256, [4000] * 256),
    (250, 100, 5000, 1, 4, [10] * 6),
    (100, 30, 20000, 8, 5, [10, 20, 40, 100, 100, 400, 25]),
    (250, 100, 5000, 3, 2, [250, 100, 100]),
    (1, 1, 1, 1, 1024, [65535 * 8] * 1024),
    (65535, 65535, 10**9, 16, 1000, [1] * 1000),
)


def vectors():
    lines = ["// SPDX-License-Identifier: BSD-3-Clause",
             "// Made by `test/reference/tile_costs.py make`. Not by hand.",
             "#pragma once", "", "#include <array>", "#include <cstdint>", "#include <vector>", "",
             "namespace gradwire::test {", "",
             "struct CostGroup {", "  std::uint16_t packet_ns, byte_ps;",
             "  std::uint32_t hop_ns;", "  std::uint8_t lanes;", "  std::uint16_t nranks;",
             "  std::vector<std::uint32_t> rates;  ///< if there is one only, of all `ranks`",
             "  std::uint32_t ranks;", "};", "struct CostVector {", "  std::size_t group;",
             "  std::uint8_t collective;  ///< all-reduce, reduce-scatter, all-gather",
             "  std::uint64_t bytes;", "  std::uint32_t payload;",
             "  std::uint64_t ring, tiles;  ///< picoseconds, the lowest 64 bits",
             "  bool by_tiles;", "};", "", "// clang-format off",
             "inline const std::vector<CostGroup> kCostGroups = {"]
    for g, c, hop, lanes, n, rates in GROUPS:
        few = rates[:1] if len(set(rates)) == 1 else rates
        lines.append(f"    {{{g}, {c}, {hop}, {lanes}, {n}, {tile_shares.braced(few)}, "
                     f"{len(rates)}}},")
    lines += ["};", "inline const std::vector<CostVector> kCostVectors = {"]
    for at, values in enumerate(GROUPS):
        group = Group(*values)
        for which, passes in enumerate(PASSES):
            for size in SIZES:
                for payload in PAYLOADS:
                    ring, tiles = (way(passes, size, payload) for way in (group.ring, group.tiles))
                    lines.append(
                        f"    {{{at}, {which}, {size}u, {payload}, {ring % 2**64}u, "
                        f"{tiles % 2**64}u, {'true' if 8 * tiles <= 7 * ring else 'false'}}},")
    lines += ["};", "// clang-format on", "", "}  // namespace gradwire::test", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    tile_shares.print_or_compare(vectors(), VECTORS)
