// SPDX-License-Identifier: BSD-3-Clause
// Scratch memory of ops by tiles (lib/collective/tiles/tile_places.h).
#include "collective/tiles/tile_places.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>

using namespace gradwire;
using collective::TilePlaces;

TEST_CASE("scratch memory has the places of the page's table", "[tiles]") {
  struct Row {
    std::uint16_t ranks;
    std::uint32_t payload;
    std::uint32_t chunks;
    std::uint64_t tile;
    std::uint64_t parts_bytes;
    std::uint32_t parts;
    std::uint32_t results;
    double mib;
  };
  constexpr auto kRows = std::to_array<Row>({
      {2, 1408, 46, 64'768, 129'536, 48, 32, 7.9},
      {2, 8896, 7, 62'272, 124'544, 50, 33, 7.9},
      {64, 1408, 11, 15'488, 991'232, 6, 135, 7.7},
      {64, 8896, 1, 8896, 569'344, 11, 235, 8.0},
      {1024, 1408, 1, 1408, 1'441'792, 4, 1024, 6.9},
      {1024, 8896, 1, 8896, 9'109'504, 2, 235, 19.4},
  });
  for (const Row& row : kRows) {
    CAPTURE(row.ranks, row.payload);
    const TilePlaces places = collective::tile_places(row.payload, row.ranks, 8192u << 10);
    CHECK(collective::chunks_of_tile(row.payload, row.ranks) == row.chunks);
    CHECK(places.result_bytes == row.tile);
    CHECK(places.part_bytes == row.parts_bytes);
    CHECK(places.parts == row.parts);
    CHECK(places.results == row.results);
    CHECK(static_cast<double>(places.bytes()) / (1 << 20) == Approx(row.mib).margin(0.05));
  }
  // The fewest and the most.
  CHECK(collective::tile_places(8896, 1024, 0).parts == 2);
  CHECK(collective::tile_places(8896, 1024, 0).results == 4);
  CHECK(collective::tile_places(1408, 2, std::uint64_t{1} << 40).parts == 64);
  CHECK(collective::tile_places(1408, 2, std::uint64_t{1} << 40).results == 1024);
}
