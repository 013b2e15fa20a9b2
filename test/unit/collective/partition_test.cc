// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shapes/partition.h"

#include <catch2/catch.hpp>
#include <vector>

#include "collective/shapes/shape.h"

using namespace gradwire;
using namespace gradwire::collective;

TEST_CASE("chunks cover every element once, in order, and never cross a segment") {
  for (const std::uint64_t count : {1, 15, 16, 17, 63, 64, 65, 1000, 4096, 100'003}) {
    for (const std::uint16_t nranks : {1, 2, 3, 5, 64}) {
      for (const DataType type : {DataType::kInt8, DataType::kFloat16, DataType::kFloat64}) {
        const Partition partition(count, type, nranks, 192);
        std::vector<int> covered(count);
        for (std::uint64_t chunk = 0; chunk < partition.total_chunks(); ++chunk) {
          const std::uint64_t first = partition.first_element(chunk);
          const std::uint64_t elements = partition.elements(chunk);
          REQUIRE(elements >= 1);
          REQUIRE(elements * element_bytes(type) <= 192);
          REQUIRE(first / partition.segment_elements() == partition.segment_of(chunk));
          REQUIRE((first + elements - 1) / partition.segment_elements() ==
                  partition.segment_of(chunk));
          for (std::uint64_t i = first; i < first + elements; ++i) ++covered[i];
        }
        CHECK(covered == std::vector<int>(count, 1));
        std::uint64_t chunks = 0;
        for (std::uint16_t segment = 0; segment < nranks; ++segment) {
          chunks += partition.end_chunk(segment) - partition.first_chunk(segment);
        }
        CHECK(chunks == partition.total_chunks());
      }
    }
  }
}

TEST_CASE("a segment is ceil(count/nranks) rounded up to 64 bytes") {
  CHECK(Partition(100, DataType::kFloat32, 3, 8192).segment_elements() == 48);
  CHECK(Partition(16, DataType::kFloat32, 2, 8192).segment_elements() == 16);
  CHECK(Partition(0, DataType::kFloat32, 2, 8192).total_chunks() == 0);
  CHECK(Partition(16, DataType::kFloat32, 2, 8192).total_chunks() == 1);
}

TEST_CASE("every chunk reaches every rank by the hops of its way") {
  for (std::uint16_t nranks = 2; nranks <= 9; ++nranks) {
    for (std::uint16_t segment = 0; segment < nranks; ++segment) {
      for (int hop = 0; hop < 2 * (nranks - 1); ++hop) {
        const auto receiver = static_cast<std::uint16_t>((segment + hop + 1) % nranks);
        const Place place = ring_place(receiver, segment, nranks);
        if (hop < nranks - 1) {
          REQUIRE(place.gets_reducing);
          CHECK(place.reducing_hop == hop);
          CHECK(place.reduces_last == (hop == nranks - 2));
        } else {
          REQUIRE(place.gets_gathering);
          CHECK(place.gathering_hop == hop);
          CHECK(place.forwards_gather == (hop < 2 * nranks - 3));
        }
      }
      const auto last = static_cast<std::uint16_t>((segment + nranks - 1) % nranks);
      CHECK_FALSE(ring_place(last, segment, nranks).gets_gathering);
      CHECK_FALSE(ring_place(segment, segment, nranks).gets_reducing);
    }
  }
}

TEST_CASE("lanes share the chunks without rest") {
  for (const std::uint8_t lanes : {1, 2, 3, 4}) {
    for (std::uint64_t first = 0; first < 20; ++first) {
      for (std::uint64_t end = first; end < 30; ++end) {
        std::uint64_t sum = 0;
        for (std::uint8_t lane = 0; lane < lanes; ++lane) {
          std::uint64_t counted = 0;
          for (std::uint64_t c = first; c < end; ++c) counted += c % lanes == lane ? 1 : 0;
          REQUIRE(chunks_on_lane(first, end, lane, lanes) == counted);
          sum += counted;
        }
        REQUIRE(sum == end - first);
      }
    }
  }
}
