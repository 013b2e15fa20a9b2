// SPDX-License-Identifier: BSD-3-Clause
// A neighbor with the right token that breaks the protocol: the lane must not spin, and an op that
// cannot end any more must fail with the neighbor's name.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "support/forger.h"
#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;
using sim::OpCase;

namespace {

constexpr TimeNs kMs = 1'000'000;

/// A chunk of zeros of an op that `shard` has posted, in the name of the rank before.
void send_chunk(collective::Shard& shard, const collective::OpSpec& spec, std::uint32_t chunk,
                std::uint16_t count, std::uint64_t number, TimeNs now) {
  const collective::ShardConfig& config = shard.config();
  rte_mbuf* frame = rte_pktmbuf_alloc(config.packet_pool);
  REQUIRE(frame != nullptr);
  const std::size_t payload_bytes = count * element_bytes(spec.datatype);
  const auto bytes = static_cast<std::uint16_t>(wire::kHeaderBytes + payload_bytes);
  auto* at = reinterpret_cast<std::byte*>(rte_pktmbuf_append(frame, bytes));
  REQUIRE(at != nullptr);
  const std::span<std::byte> room(at, bytes);
  std::fill(room.begin(), room.end(), std::byte{});
  wire::CommonHeader common;
  common.lane = config.lane;
  common.group_tag = wire::group_tag(config.key);
  common.from_rank = collective::upstream_rank(config.rank, config.nranks);
  common.token = config.upstream.tokens.from;
  common.packet_number = number;
  const wire::DataHeader data{.op_seq = spec.op_seq,
                              .total_count = spec.count,
                              .chunk = chunk,
                              .tag = spec.tag,
                              .count = count,
                              .datatype = spec.datatype,
                              .redop = spec.redop,
                              .collective = spec.collective};
  wire::encode_data(room.first<wire::kHeaderBytes>(), common, data,
                    wire::crc32c(room.subspan(wire::kHeaderBytes)));
  wire::Packet packet;
  REQUIRE(wire::decode(room, packet) == wire::Drop::kNone);
  shard.on_packet(frame, packet, shard.source_of(packet.common, config.upstream.ip), false, now);
}

}  // namespace

TEST_CASE(
    "a chunk that goes on before all ranks have posted its op is refused, and no lane spins") {
  RingOptions options;
  options.nranks = 3;
  options.shard.eager_packets = 1;
  OpCase op(3, 1, {.count = 4 * 64, .collective = Collective::kReduceScatter});
  RingHarness ring(options);
  REQUIRE(ring.form());
  ring.freeze(0);
  ring.freeze(2);
  // The block of process 2 starts at rank 0: rank 1 gets its four chunks at hop 0, and hands them
  // on.
  const collective::OpSpec spec = op.spec(1, 1);
  for (const bool posted : {false, true}) {
    if (posted) ring.post(1, spec);
    ring.run_for(10'000);
    for (std::uint32_t i = posted ? 1 : 0; i < (posted ? 4u : 1u); ++i) {
      send_chunk(ring.shard(1), spec, 2 * 4 + i, 64, 1'000 + i, ring.now());
    }
  }
  ring.run_for(1 * kMs);
  REQUIRE_FALSE(ring.aborted(1));
  CHECK(ring.until_deadline(1) > 0);
  CHECK(ring.drops(wire::Drop::kBadChunk) == 4);
  CHECK(ring.counter(&collective::ShardCounters::data_packets_sent) == 0);
  CHECK(ring.leaked_mbufs() == 0);
}

TEST_CASE("a neighbor that says it finished an op which still needs it is named, and soon") {
  const bool from_upstream = GENERATE(true, false);
  const std::uint16_t nranks = GENERATE(2, 3);
  const bool posted_before = GENERATE(true, false);
  INFO(nranks << " ranks, from the rank " << (from_upstream ? "before" : "after") << ", op posted "
              << (posted_before ? "before" : "after"));
  RingOptions options;
  options.nranks = nranks;
  AllReduceCase op(nranks, 1, 10'000, DataType::kFloat32, RedOp::kSum, 1, false);
  RingHarness ring(options);
  REQUIRE(ring.form());
  const std::uint16_t here = 1;
  const std::uint16_t liar = from_upstream || nranks == 2 ? 0 : 2;
  ring.freeze(liar);
  collective::Shard& shard = ring.shard(here);
  // Other ranks have posted it too, and are there.
  const auto post = [&] {
    for (std::uint16_t rank = 0; rank < nranks; ++rank) {
      if (rank != liar) ring.post(rank, op.spec(rank, 1));
    }
    ring.run_for(2 * kMs);
  };
  if (posted_before) post();
  Forger(shard, from_upstream, 0).send(wire::PacketType::kBye, ring.now());
  if (!posted_before) post();
  REQUIRE(ring.run_until([&] { return ring.aborted(here); }, 100 * kMs));
  const AbortReason& reason = shard.reason();
  CHECK(reason.code == AbortCode::kPeerLeft);
  CHECK(reason.culprit_rank == liar);
  CHECK(reason.reporter_rank == here);
  CHECK(reason.op_seq == 1);
  CHECK_THAT(std::string(reason.detail),
             Catch::Contains("it said that it was done with op 1, but it has not"));
}

TEST_CASE(
    "a rank that is done and says bye is not to blame for pings that it does not acknowledge") {
  RingOptions options;
  options.nranks = 3;
  AllReduceCase op(3, 1, 192, DataType::kFloat32, RedOp::kSum, 1, false);
  RingHarness ring(options);
  REQUIRE(ring.form());
  // What rank 1 waits for goes this way twice, what rank 2 waits for once.
  ring.delay_rail(0, 1, 0, 10 * collective::kStallNs);
  ring.lose([](sim::HostId from, sim::HostId to, wire::PacketType type) {
    return from == 1 && to == 2 && type != wire::PacketType::kData;
  });
  for (std::uint16_t rank = 0; rank < 3; ++rank) ring.post(rank, op.spec(rank, 1));
  REQUIRE(ring.run_until([&] { return ring.done(2, 1); }));
  ring.leave(2);
  ring.run_for(2 * collective::kStallNs);
  // Its host has another MAC, as far as this one knows, so it is asked whether it lives.
  const collective::ShardConfig& config = ring.shard(1).config();
  ring.shard(1).lead_to(2, config.downstream.ip, config.downstream.frame);
  ring.run_for(1 * kMs);
  REQUIRE_FALSE(ring.done(1, 1));
  CHECK(ring.shard(1).status(ring.now()).packets_in_flight > 0);
  CHECK_FALSE(ring.shard(1).status(ring.now()).waits_for_downstream);
  REQUIRE(ring.run_until([&] { return ring.done(1, 1) || ring.aborted(1); }));
  CHECK(ring.done(1, 1));
  CHECK(op.wrong(1) == "");
}
