// SPDX-License-Identifier: BSD-3-Clause
#include "collective/direct/early_contributions.h"

#include <array>
#include <catch2/catch.hpp>
#include <vector>

namespace gradwire::collective {
namespace {

/// Ranks 2 and 1 contribute, and are looked for in that order.
struct Early {
  wire::Drop keep(std::uint16_t rank, std::uint64_t op_seq, std::uint32_t chunk,
                  std::size_t bytes = 8) {
    wire::Packet packet;
    packet.common.type = wire::PacketType::kContribution;
    packet.common.from_rank = rank;
    packet.data.op_seq = op_seq;
    packet.data.chunk = chunk;
    payload.fill(static_cast<std::byte>(chunk));
    packet.payload = {payload.data(), bytes};
    packet.payload_crc = wire::crc32c(packet.payload);
    return early.keep(packet);
  }

  std::array<std::byte, 16> payload{};
  std::vector<std::uint16_t> ranks{2, 1};
  ShardCounters counters;
  EarlyContributions early{ranks, {0, 8, 8}, counters};
};

}  // namespace

TEST_CASE("each rank has places of its own, and what finds none is not kept") {
  Early kept;
  CHECK_FALSE(kept.early.has_from(1));
  CHECK(kept.keep(1, 5, 0) == wire::Drop::kNone);
  CHECK(kept.keep(1, 5, 0) == wire::Drop::kDuplicate);
  CHECK(kept.keep(1, 5, 1) == wire::Drop::kNone);
  CHECK(kept.early.has_from(1));
  CHECK(kept.keep(1, 5, 2) == wire::Drop::kEagerOverflow);
  CHECK(kept.keep(2, 5, 2, 9) == wire::Drop::kBadChunk);
  CHECK(kept.keep(2, 5, 2) == wire::Drop::kNone);
  CHECK(kept.counters.early_packets == 3);
}

TEST_CASE("what came for an op is taken once, and its places are free again") {
  Early kept;
  REQUIRE(kept.keep(1, 5, 3) == wire::Drop::kNone);
  REQUIRE(kept.keep(1, 6, 4) == wire::Drop::kNone);
  REQUIRE(kept.keep(2, 5, 7) == wire::Drop::kNone);
  std::vector<std::uint32_t> chunks;
  while (const auto ahead = kept.early.take(5)) {
    chunks.push_back(ahead->contribution.chunk);
    CHECK(ahead->contribution.bytes == 8);
    CHECK(ahead->contribution.payload[7] == static_cast<std::byte>(ahead->contribution.chunk));
  }
  CHECK(chunks == std::vector<std::uint32_t>{3, 7});
  CHECK(kept.keep(1, 7, 0) == wire::Drop::kNone);
  const auto next = kept.early.take(6);
  REQUIRE(next);
  CHECK(next->rank == 1);
  CHECK_FALSE(kept.early.take(6));
}

TEST_CASE("the oldest op is found, of several ranks that of the one that is looked for first") {
  Early kept;
  CHECK_FALSE(kept.early.oldest());
  REQUIRE(kept.keep(1, 6, 0) == wire::Drop::kNone);
  REQUIRE(kept.early.oldest());
  CHECK(kept.early.oldest()->rank == 1);
  REQUIRE(kept.keep(2, 6, 0) == wire::Drop::kNone);
  CHECK(kept.early.oldest()->rank == 2);
  REQUIRE(kept.keep(1, 5, 0) == wire::Drop::kNone);
  CHECK(kept.early.oldest()->rank == 1);
  CHECK(kept.early.oldest()->contribution.op_seq == 5);
  REQUIRE(kept.early.take(5));
  CHECK(kept.early.oldest()->rank == 2);
}

}  // namespace gradwire::collective
