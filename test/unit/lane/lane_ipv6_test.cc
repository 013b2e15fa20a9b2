// SPDX-License-Identifier: BSD-3-Clause
// Lanes over IPv6: every datagram has a right checksum, sums are right to the bit, and what asks
// for neighbors goes to the control thread.
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "lane_frames.h"
#include "port/neighbors/neighbor_message.h"
#include "wire/internet_checksum.h"

using namespace gradwire;
using namespace gradwire::lane;
using gradwire::test::AllReduceCase;

namespace {

std::span<std::byte> bytes_of(rte_mbuf* frame) {
  return {rte_pktmbuf_mtod(frame, std::byte*), rte_pktmbuf_data_len(frame)};
}

bool sum_is_right(rte_mbuf* frame) {
  wire::FrameView view;
  if (wire::parse_frame(bytes_of(frame), view) != wire::Drop::kNone) return false;
  const std::span<const std::byte> datagram(view.payload.data() - wire::kUdpBytes,
                                            view.payload.size() + wire::kUdpBytes);
  wire::InternetSum sum =
      wire::pseudo_header_sum(view.source_ip, view.destination_ip, 17, datagram.size());
  sum.add(datagram);
  return view.kind == wire::FrameKind::kUdp && sum.folded() == 0xffff;
}

TwoRanksOptions over_ipv6() {
  TwoRanksOptions options;
  options.ipv6 = true;
  return options;
}

}  // namespace

TEST_CASE("two ranks sum over IPv6, by datagrams that each have their checksum") {
  TwoRanks* both = nullptr;
  std::size_t carried = 0;
  std::size_t wrong = 0;
  TwoRanksOptions options = over_ipv6();
  options.joined = false;
  options.carry = [&] {
    const auto move = [&](rte_ring* from, rte_ring* to) {
      void* frame = nullptr;
      while (!rte_ring_full(to) && rte_ring_dequeue(from, &frame) == 0) {
        ++carried;
        if (!sum_is_right(static_cast<rte_mbuf*>(frame))) ++wrong;
        REQUIRE(rte_ring_enqueue(to, frame) == 0);
      }
    };
    move(both->ports().from_a(), both->ports().to_b());
    move(both->ports().from_b(), both->ports().to_a());
  };
  TwoRanks ranks(options);
  both = &ranks;
  REQUIRE(ranks.form());
  std::vector<AllReduceCase> cases;
  for (const std::uint64_t count : {1u, 3u, 1'000u, 100'000u}) {
    cases.emplace_back(2, 1, count, DataType::kInt8, RedOp::kSum, count, true);
    cases.emplace_back(2, 1, count, DataType::kFloat32, RedOp::kSum, count, false);
  }
  check_all(ranks, cases);
  ranks.leave_and_check();
  CHECK(carried > 500);
  CHECK(wrong == 0);
}

TEST_CASE("a packet over IPv6 whose address was changed on its way is dropped") {
  TwoRanks ranks(over_ipv6());
  REQUIRE(ranks.form());
  for (int i = 0; i < 20; ++i) ranks.round();
  const std::uint32_t tag = wire::group_tag(ranks.rank(1).plan.shards[0].shard->config().key);
  auto frame = ping_frame(ranks, tag, TwoRanks::kPort, "fd00::2", 0, "fd00::1");
  const auto dropped = [&](wire::Drop why) {
    const std::uint64_t before = drops(ranks, 1, why);
    inject(ranks, frame);
    ranks.round();
    return drops(ranks, 1, why) - before == 1;
  };
  // Nobody has completed it.
  CHECK(dropped(wire::Drop::kMalformed));
  REQUIRE(wire::complete_ipv6(std::span(frame).subspan(wire::kEthernetBytes), wire::UdpSum::kCpu));
  frame[22 + 15] ^= std::byte{8};
  CHECK(dropped(wire::Drop::kHeaderCrc));
  frame[22 + 15] ^= std::byte{8};
  // Whole, it is a packet of the group; that its number was used, is seen later.
  const std::uint64_t before = drops(ranks, 1, wire::Drop::kHeaderCrc);
  inject(ranks, frame);
  ranks.round();
  CHECK(drops(ranks, 1, wire::Drop::kHeaderCrc) == before);
  ranks.leave_and_check();
}

TEST_CASE("questions for a lane's IPv6 address go to the control thread, a flood in part") {
  TwoRanks ranks(over_ipv6());
  Datapath& second = *ranks.rank(1).datapath;
  port::NeighborSender asker;
  asker.mac = ranks.rank(0).datapath->ports()[0]->mac();
  asker.ip = ranks.ip_of(0);
  const auto question = [&](const char* target) {
    const auto made = port::make_question(asker, *wire::parse_ip(target), std::nullopt);
    return std::vector<std::byte>(made.view().begin(), made.view().end());
  };
  inject(ranks, question("fd00::3"));
  ranks.round();
  ControlFrame frame;
  CHECK_FALSE(second.receive_frame(frame));
  inject(ranks, question("fd00::2"));
  ranks.round();
  REQUIRE(second.receive_frame(frame));
  CHECK(std::memcmp(frame.bytes.data(), question("fd00::2").data(), frame.size) == 0);
  for (int i = 0; i < 2'000; ++i) {
    inject(ranks, question("fd00::2"));
    ranks.round();
  }
  CHECK(second.lane(0).counters().neighbor_drops > 0);
  while (second.receive_frame(frame)) CHECK(frame.size == question("fd00::2").size());
}
