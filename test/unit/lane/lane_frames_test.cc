// SPDX-License-Identifier: BSD-3-Clause
// What a lane does with frames that are not its packets: foreign ones, other versions, segments,
// ARP.
#include "lane/lane.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "lane_frames.h"

using namespace gradwire;
using namespace gradwire::lane;
using gradwire::test::AllReduceCase;

TEST_CASE("foreign frames are counted by reason and change nothing") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  for (int i = 0; i < 20; ++i) ranks.round();
  const auto dropped = [&](const std::vector<std::byte>& frame, wire::Drop why) {
    const std::uint64_t before = drops(ranks, 1, why);
    inject(ranks, frame);
    ranks.round();
    return drops(ranks, 1, why) - before == 1;
  };
  const std::uint32_t id = wire::group_tag(ranks.rank(1).plan.shards[0].shard->config().key);
  CHECK(dropped(std::vector<std::byte>(6), wire::Drop::kShort));
  CHECK(dropped(std::vector<std::byte>(60), wire::Drop::kForeign));
  CHECK(dropped(ping_frame(ranks, id, TwoRanks::kPort + 1), wire::Drop::kForeign));
  CHECK(dropped(ping_frame(ranks, id, TwoRanks::kPort, "10.0.0.9"), wire::Drop::kForeign));
  CHECK(dropped(ping_frame(ranks, id ^ 0x80000000), wire::Drop::kUnknownGroup));
  auto other_mac = ping_frame(ranks, id);
  other_mac[0] = std::byte{2};
  other_mac[5] = std::byte{9};
  CHECK(dropped(other_mac, wire::Drop::kForeign));
  auto damaged = ping_frame(ranks, id);
  damaged[14 + 20 + 8 + 9] ^= std::byte{1};
  CHECK(dropped(damaged, wire::Drop::kHeaderCrc));
  auto version = ping_frame(ranks, id);
  version[14 + 20 + 8] = std::byte{77};
  CHECK(dropped(version, wire::Drop::kVersion));

  std::vector<AllReduceCase> cases;
  cases.emplace_back(2, 1, 10'000, DataType::kFloat32, RedOp::kSum, 3, true);
  check_all(ranks, cases);
  ranks.leave_and_check();
}

TEST_CASE("a lane keeps which version a neighbor speaks that a group waits for") {
  TwoRanks ranks;
  // Rank 0 is of another release: it sends what it sends, and takes no hello.
  ranks.add_client_and_group(1);
  for (int i = 0; i < 20; ++i) ranks.round();
  auto older = ping_frame(ranks, 0x1234);
  older[14 + 20 + 8] = std::byte{1};
  auto stranger = ping_frame(ranks, 0x1234, TwoRanks::kPort, "10.0.0.2", 0, "10.0.0.66");
  stranger[14 + 20 + 8] = std::byte{3};
  for (const auto* frame : {&stranger, &older, &stranger}) {
    inject(ranks, *frame);
    ranks.round(2'000'000);
  }
  CHECK(drops(ranks, 1, wire::Drop::kVersion) == 3);
  REQUIRE(ranks.run_until(
      [&] { return ranks.count_notices(1, command::NoticeType::kGroupAborted) == 1; },
      40'000'000'000, 1'000'000));
  const AbortReason reason = ranks.rank(1).plan.shards[0].shard->reason();
  CHECK(reason.code == AbortCode::kFormation);
  CHECK(std::string(reason.detail).starts_with("rank 0 at 10.0.0.1 sends version 1 of"));
  ranks.add_client_and_group(0);
  ranks.leave_and_check();
}

TEST_CASE("a frame in several segments is read as one") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  const std::uint64_t before = drops(ranks, 1, wire::Drop::kUnknownGroup);
  inject(ranks, ping_frame(ranks, 0), 3);
  ranks.round();
  CHECK(drops(ranks, 1, wire::Drop::kUnknownGroup) == before + 1);
  ranks.leave_and_check();
}

TEST_CASE("ARP goes to the control thread and back, and pings are answered by the lane") {
  TwoRanks ranks;
  Datapath& first = *ranks.rank(0).datapath;
  Datapath& second = *ranks.rank(1).datapath;
  std::vector<std::byte> arp(60);
  const unsigned char request[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0,
                                   1,    8,    6,    0,    1,    8,    0, 6, 4, 0, 1};
  std::memcpy(arp.data(), request, sizeof request);
  const unsigned char target[] = {10, 0, 0, 2};
  std::memcpy(arp.data() + 38, target, sizeof target);
  REQUIRE(first.send_frame(0, arp));
  ranks.round();
  ranks.round();
  ControlFrame frame;
  REQUIRE(second.receive_frame(frame));
  CHECK(frame.port == 0);
  REQUIRE(frame.size == arp.size());
  CHECK(std::memcmp(frame.bytes.data(), arp.data(), arp.size()) == 0);
  CHECK_FALSE(second.receive_frame(frame));
  CHECK(second.lane(0).counters().neighbor_frames == 1);

  // A flood of them is dropped, not kept.
  for (int i = 0; i < 2'000; ++i) {
    inject(ranks, arp);
    ranks.round();
  }
  CHECK(second.lane(0).counters().neighbor_drops > 0);
  while (second.receive_frame(frame)) CHECK(frame.size == arp.size());

  // An echo request from 10.0.0.1 to 10.0.0.2 (see neighbors_test.cc).
  const int echo[] = {0, 0,  0, 0, 0,    0, 0,    0,    0,    0,    0,    0,    8,    0,   0x45, 0,
                      0, 32, 0, 1, 0,    0, 64,   1,    0x66, 0xda, 10,   0,    0,    1,   10,   0,
                      0, 2,  8, 0, 0x21, 4, 0x12, 0x34, 0,    1,    0x61, 0x62, 0x63, 0x64};
  std::vector<std::byte> ping;
  for (const int value : echo) ping.push_back(static_cast<std::byte>(value));
  ping.resize(60);
  const auto& mac = second.ports()[0]->mac();
  std::memcpy(ping.data(), mac.data(), mac.size());
  inject(ranks, ping);
  second.lane(0).poll_once(ranks.now);
  CHECK(second.lane(0).counters().echo_replies == 1);
  void* object = nullptr;
  REQUIRE(rte_ring_dequeue(ranks.ports().to_a(), &object) == 0);
  auto* reply = static_cast<rte_mbuf*>(object);
  CHECK(rte_pktmbuf_mtod(reply, const unsigned char*)[34] == 0);
  rte_pktmbuf_free(reply);
}

// net_ring keeps what was sent until somebody takes it from the ring, as a NIC may keep it in its
// descriptors until they are wanted again.
TEST_CASE("a driver that keeps what it sent leaves ARP its buffers") {
  TwoRanksOptions options;
  options.ring_entries = 2048;
  options.tx_descriptors = 2048;
  options.joined = false;
  TwoRanks ranks(options);
  Datapath& first = *ranks.rank(0).datapath;
  std::vector<std::byte> arp(60);
  int sent = 0;
  while (sent < 2'047 && first.send_frame(0, arp)) {
    ++sent;
    if (sent % 32 == 0) ranks.round();
  }
  ranks.round();
  CHECK(sent == 2'047);
  CHECK(rte_ring_count(ranks.ports().from_a()) == 2'047);
  // Then the backlog is full, too, and so is the ring to the lane.
  for (sent = 0; sent < 1'000 && first.send_frame(0, arp); ++sent) {
    if (sent % 32 == 31 && sent < 256) ranks.round(1);
  }
  CHECK(sent == 256 + 255);

  // 10.0.0.9 asks who has 10.0.0.1.
  const unsigned char request[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0,  9, 8, 6,
                                   0,    1,    8,    0,    6,    4,    0, 1, 2, 0, 0,  0, 0, 9,
                                   10,   0,    0,    9,    0,    0,    0, 0, 0, 0, 10, 0, 0, 1};
  std::memcpy(arp.data(), request, sizeof request);
  rte_mbuf* mbuf = rte_pktmbuf_alloc(ranks.rank(1).datapath->pools(0).packet());
  REQUIRE(mbuf != nullptr);
  std::memcpy(rte_pktmbuf_append(mbuf, 60), arp.data(), arp.size());
  REQUIRE(rte_ring_enqueue(ranks.ports().to_a(), mbuf) == 0);
  ranks.round(1);
  ControlFrame frame;
  CHECK(first.receive_frame(frame));
  CHECK(first.lane(0).counters().neighbor_drops == 0);
  ranks.ports().drain();
}
