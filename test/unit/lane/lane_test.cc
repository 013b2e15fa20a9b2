// SPDX-License-Identifier: BSD-3-Clause
// Whole lanes: two datapaths in one process, driven round by round in virtual time (embedded mode).
#include "lane/lane.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "two_ranks.h"

using namespace gradwire;
using namespace gradwire::lane;
using gradwire::test::AllReduceCase;

namespace {

/// Takes all and does nothing, until it is told to: then it fails everything.
class StuckBackend final : public reduce::Backend {
 public:
  explicit StuckBackend(const bool& gives_back) : gives_back_(gives_back) {}
  const char* name() const noexcept override { return "stuck"; }
  std::size_t submit(std::span<const reduce::Entry> entries) noexcept override {
    for (const reduce::Entry& entry : entries) held_.push_back(entry.cookie);
    return entries.size();
  }
  std::size_t poll(std::span<reduce::Completion> done) noexcept override {
    std::size_t count = 0;
    for (; gives_back_ && count < done.size() && !held_.empty(); ++count) {
      done[count] = {held_.back(), false};
      held_.pop_back();
    }
    return count;
  }
  const reduce::BackendCounters& counters() const noexcept override { return counters_; }

 private:
  const bool& gives_back_;
  std::vector<decltype(reduce::Entry::cookie)> held_;
  reduce::BackendCounters counters_;
};

/// Posts every case on both ranks, runs to the end and checks the bits of both.
void check_all(TwoRanks& ranks, std::vector<AllReduceCase>& cases) {
  for (auto& each : cases) {
    for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, each);
  }
  for (std::uint16_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      INFO("rank " << r << " op " << i + 1);
      std::optional<ipc::CompletionEntry> answer;
      REQUIRE(ranks.run_until([&] {
        answer = ranks.rank(r).client->completion();
        return answer.has_value();
      }));
      INFO(answer->text);
      REQUIRE(static_cast<ErrorCode>(answer->status) == ErrorCode::kOk);
      CHECK(answer->request_id == 1'001 + i);
      CHECK(answer->op_seq == 1 + i);
    }
  }
  for (auto& each : cases) {
    CHECK(each.wrong(0) == "");
    CHECK(each.wrong(1) == "");
  }
}

std::uint64_t drops(TwoRanks& ranks, std::uint16_t r, wire::Drop why) {
  return ranks.rank(r).datapath->lane(0).counters().drops[static_cast<std::size_t>(why)];
}

/// Puts a frame before rank 1's port, as if rank 0's host had sent it.
void inject(TwoRanks& ranks, const std::vector<std::byte>& frame, std::size_t segments = 1) {
  rte_mempool* pool = ranks.rank(0).datapath->pools(0).packet();
  rte_mbuf* head = nullptr;
  const std::size_t part = (frame.size() + segments - 1) / segments;
  for (std::size_t at = 0; at < frame.size(); at += part) {
    rte_mbuf* mbuf = rte_pktmbuf_alloc(pool);
    REQUIRE(mbuf != nullptr);
    const std::size_t bytes = std::min(part, frame.size() - at);
    std::memcpy(rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(bytes)), frame.data() + at,
                bytes);
    if (head == nullptr) {
      head = mbuf;
    } else {
      REQUIRE(rte_pktmbuf_chain(head, mbuf) == 0);
    }
  }
  REQUIRE(rte_ring_enqueue(ranks.ports().to_b(), head) == 0);
}

/// A UDP frame to rank 1 with a ping from rank 0 for the group of that tag in it.
std::vector<std::byte> ping_frame(TwoRanks& ranks, std::uint32_t tag,
                                  std::uint16_t udp_port = TwoRanks::kPort,
                                  const char* destination = "10.0.0.2", std::uint64_t token = 0,
                                  const char* source = "10.0.0.1") {
  wire::FrameAddresses addresses;
  addresses.source_mac = ranks.rank(0).datapath->ports()[0]->mac();
  addresses.destination_mac = ranks.rank(1).datapath->ports()[0]->mac();
  addresses.source_ip = *wire::parse_ip(source);
  addresses.destination_ip = *wire::parse_ip(destination);
  addresses.source_port = addresses.destination_port = udp_port;
  const auto header = wire::FrameTemplate::make(addresses);
  REQUIRE(header);
  std::vector<std::byte> frame(header->bytes() + wire::kHeaderBytes);
  header->write(frame.data(), wire::kHeaderBytes);
  wire::CommonHeader common;
  common.group_tag = tag;
  common.packet_number = 1;
  common.token = token;
  REQUIRE(wire::encode_ping({frame.data() + header->bytes(), wire::kHeaderBytes}, common) ==
          wire::kHeaderBytes);
  return frame;
}

}  // namespace

TEST_CASE("two ranks form a group and all-reduce to the bit, round by round") {
  for (const std::uint8_t lanes : {1, 2, 3}) {
    INFO("lanes " << static_cast<int>(lanes));
    TwoRanksOptions options;
    options.lanes = lanes;
    TwoRanks ranks(options);
    REQUIRE(ranks.form());
    std::vector<AllReduceCase> cases;
    std::uint64_t seed = 1;
    for (const std::uint64_t count : {0, 1, 64, 1'000, 100'000}) {
      cases.emplace_back(2, 1, count, DataType::kFloat32, RedOp::kSum, ++seed, true);
      cases.emplace_back(2, 1, count, DataType::kFloat32, RedOp::kAvg, ++seed, false);
      cases.emplace_back(2, 1, count, DataType::kInt64, RedOp::kMax, ++seed, false);
    }
    check_all(ranks, cases);
    CHECK(ranks.counter(0, &LaneCounters::ops_done) == cases.size() * lanes);
    CHECK(ranks.commands(0) == cases.size());
    CHECK(ranks.counter(0, &LaneCounters::tx_packets) > 0);
    CHECK(ranks.counter(0, &LaneCounters::rx_packets) > 0);
    ranks.leave_and_check();
  }
}

TEST_CASE("a paced port holds its rate, and the check finds out where it is not paced") {
  constexpr std::uint64_t kRate = 400'000'000;
  constexpr TimeNs kWindow = 1'000'000;
  constexpr std::uint64_t kBurst = 50'000;  // a thousandth of a second of the rate
  for (const bool paced : {true, false}) {
    INFO("paced " << paced);
    TwoRanksOptions options;
    options.port_rate_bps = paced ? kRate : 0;
    options.tx_trace_bursts = 1u << 17;
    TwoRanks ranks(options);
    REQUIRE(ranks.form());
    std::vector<AllReduceCase> cases;
    cases.emplace_back(2, 1, 500'000, DataType::kFloat32, RedOp::kSum, 5, false);
    check_all(ranks, cases);
    std::uint64_t windows = 0;
    std::uint64_t windows_at_rate = 0;
    std::uint64_t bytes = 0;
    std::uint64_t most_ahead = 0;  // of what the rate allows, over every stretch of time
    double bucket = 0;
    const auto bursts = ranks.rank(0).datapath->lane(0).tx_trace(0).bursts();
    REQUIRE(bursts.size() > 50);
    TimeNs window = bursts.front().at;
    TimeNs before = bursts.front().at;
    for (const TxTrace::Burst& burst : bursts) {
      while (burst.at >= window + kWindow) {
        ++windows;
        windows_at_rate += bytes > kRate / 8'000 * 98 / 100 && bytes < kRate / 8'000 * 102 / 100;
        window += kWindow;
        bytes = 0;
      }
      bytes += burst.bytes;
      bucket = std::max(0.0, bucket - static_cast<double>(burst.at - before) * kRate / 8e9);
      bucket += static_cast<double>(burst.bytes);
      most_ahead = std::max(most_ahead, static_cast<std::uint64_t>(bucket));
      before = burst.at;
    }
    // Both directions' acknowledgements may be over it by a burst of the shard's at most.
    const bool held = windows_at_rate * 10 >= windows * 9 && most_ahead <= kBurst + 2'000;
    CHECK(held == paced);
    ranks.leave_and_check();
  }
}

// More is under way than the port's queue and the backlog before it hold.
TEST_CASE("two groups on a port that is full get as much of it") {
  TwoRanks* both = nullptr;
  std::size_t frames_a_round = 512;
  TwoRanksOptions options;
  options.window_packets = 512;
  options.ring_entries = 64;
  options.joined = false;
  options.carry = [&] {
    const auto move = [](rte_ring* from, rte_ring* to, std::size_t most) {
      void* frame = nullptr;
      for (; most > 0 && !rte_ring_full(to) && rte_ring_dequeue(from, &frame) == 0; --most) {
        REQUIRE(rte_ring_enqueue(to, frame) == 0);
      }
    };
    move(both->ports().from_a(), both->ports().to_b(), frames_a_round);
    move(both->ports().from_b(), both->ports().to_a(), 512);
  };
  TwoRanks ranks(options);
  both = &ranks;
  REQUIRE(ranks.form());
  REQUIRE(ranks.form_another());
  constexpr std::uint64_t kCount = 4'000'000;
  std::vector<std::unique_ptr<AllReduceCase>> cases;
  for (const std::uint64_t group : {TwoRanks::kGroup, TwoRanks::kGroup + 1}) {
    cases.push_back(std::make_unique<AllReduceCase>(2, 1, kCount, DataType::kFloat32, RedOp::kSum,
                                                    group, true));
    for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, *cases.back(), group);
  }
  const auto sent = [&](int group) {
    auto& rank = ranks.rank(0);
    const command::GroupPlan& plan = group == 0 ? *rank.earlier_plans[0] : rank.plan;
    return plan.shards[0].shard->counters().data_packets_sent;
  };
  frames_a_round = 8;
  ranks.run_until([] { return false; }, 2'000'000);
  const std::uint64_t before[] = {sent(0), sent(1)};
  ranks.run_until([] { return false; }, 5'000'000);
  const auto first = static_cast<double>(sent(0) - before[0]);
  const auto second = static_cast<double>(sent(1) - before[1]);
  INFO("packets " << first << " and " << second);
  CHECK(first + second > 4'000);  // of 8,000 that the port took
  CHECK(first / second < 1.25);
  CHECK(second / first < 1.25);
  frames_a_round = 512;
  ranks.leave_and_check();
}

TEST_CASE("a group that aborted while a paced port held it up does not hold up the others") {
  TwoRanksOptions options;
  options.port_rate_bps = 2'000'000;  // a packet in more time than an abort takes
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  AllReduceCase unfinished(2, 1, 500'000, DataType::kFloat32, RedOp::kSum, 5, false);
  for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, unfinished);
  for (int i = 0; i < 5'000; ++i) ranks.round();
  REQUIRE(ranks.counter(0, &LaneCounters::tx_packets) > 8);  // In the middle of it.
  ranks.abort(0);
  REQUIRE(ranks.run_until([&] {
    return ranks.count_notices(0, command::NoticeType::kGroupAborted) == 1 &&
           ranks.count_notices(1, command::NoticeType::kGroupAborted) == 1;
  }));
  // Nobody has left it: its slots are taken until its clients do.
  for (std::uint16_t r = 0; r < 2; ++r) {
    REQUIRE(ranks.run_until([&] { return ranks.rank(r).client->completion().has_value(); }));
  }
  REQUIRE(ranks.form_another());
  std::vector<AllReduceCase> cases;
  cases.emplace_back(2, 1, 5'000, DataType::kFloat32, RedOp::kSum, 6, false);
  check_all(ranks, cases);
  ranks.leave_and_check();
}

TEST_CASE("the command lane tells that a group is formed, so that its client may post at once") {
  TwoRanksOptions options;
  options.lanes = 2;
  TwoRanks ranks(options);
  for (std::uint16_t r = 0; r < 2; ++r) ranks.add_client_and_group(r);
  const auto formed = [&](std::uint16_t r) {
    ranks.take_notices(r);
    return ranks.count_notices(r, command::NoticeType::kGroupFormed);
  };
  for (int i = 0; i < 100'000 && (formed(0) < 2 || formed(1) < 2); ++i) {
    for (std::uint16_t r = 0; r < 2; ++r) {
      ranks.rank(r).datapath->lane(0).poll_once(ranks.now);
      const int told = formed(r);
      ranks.rank(r).datapath->lane(1).poll_once(ranks.now);
      // Lane 0 does not know yet what lane 1 has just seen, so nobody else may.
      REQUIRE(formed(r) == told);
    }
    ranks.now += 5'000;
  }
  CHECK(formed(0) == 2);
  CHECK(formed(1) == 2);
  ranks.leave_and_check();
}

TEST_CASE("more ops than a shard takes at once wait their turn") {
  TwoRanksOptions options;
  options.max_active_ops = 4;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  std::vector<AllReduceCase> cases;
  for (std::uint64_t i = 0; i < 40; ++i) {
    cases.emplace_back(2, 1, 500 + i, DataType::kFloat32, RedOp::kSum, i, true);
  }
  check_all(ranks, cases);
  ranks.leave_and_check();
}

TEST_CASE("a port that is always full slows an op down and breaks nothing") {
  TwoRanksOptions options;
  options.ring_entries = 8;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  std::vector<AllReduceCase> cases;
  cases.emplace_back(2, 1, 50'000, DataType::kFloat32, RedOp::kSum, 1, true);
  check_all(ranks, cases);
  CHECK(ranks.counter(0, &LaneCounters::tx_refused) > 0);
  ranks.leave_and_check();
}

TEST_CASE("an abort reaches both ranks, and every command is answered with its reason") {
  TwoRanksOptions options;
  options.lanes = 2;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  // Rank 0 alone posts: the op cannot finish.
  AllReduceCase all_reduce(2, 1, 100'000, DataType::kFloat32, RedOp::kSum, 1, false);
  ranks.post(0, all_reduce);
  for (int i = 0; i < 100; ++i) ranks.round();
  CHECK_FALSE(ranks.rank(0).client->completion());

  command::Request abort;
  abort.type = command::RequestType::kAbortGroup;
  abort.group_handle = TwoRanks::kGroup;
  abort.reason.code = AbortCode::kClientAbort;
  abort.reason.culprit_rank = 0;
  abort.reason.set_detail("had enough");
  ranks.send(0, 1, abort);  // one lane; the control thread aborts the others when it is told
  REQUIRE(ranks.run_until(
      [&] { return ranks.count_notices(0, command::NoticeType::kGroupAborted) == 1; }));
  CHECK(ranks.rank(0).notices.back().reason.code == AbortCode::kClientAbort);
  for (int i = 0; i < 100; ++i) ranks.round();
  CHECK_FALSE(ranks.rank(0).client->completion());  // lane 0 may still touch the memory
  ranks.send(0, 0, abort);
  std::optional<ipc::CompletionEntry> answer;
  REQUIRE(ranks.run_until([&] {
    answer = ranks.rank(0).client->completion();
    return answer.has_value();
  }));
  CHECK(static_cast<ErrorCode>(answer->status) == ErrorCode::kAborted);
  CHECK_THAT(std::string(answer->text), Catch::Contains("had enough"));
  REQUIRE(ranks.run_until(
      [&] { return ranks.count_notices(1, command::NoticeType::kGroupAborted) == 2; }));
  CHECK_THAT(std::string(ranks.rank(1).notices.back().reason.detail),
             Catch::Contains("had enough"));

  // The late rank is told at once.
  ranks.post(1, all_reduce);
  REQUIRE(ranks.run_until([&] {
    answer = ranks.rank(1).client->completion();
    return answer.has_value();
  }));
  CHECK(static_cast<ErrorCode>(answer->status) == ErrorCode::kAborted);
  ranks.leave_and_check();
}

TEST_CASE("an abort is told although the backend gives nothing back; the memory stays until then") {
  bool gives_back = false;
  TwoRanksOptions options;
  options.backend = [&](std::uint16_t) { return std::make_unique<StuckBackend>(gives_back); };
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  AllReduceCase all_reduce(2, 1, 10'000, DataType::kFloat32, RedOp::kSum, 1, false);
  for (const std::uint16_t rank : {0, 1}) ranks.post(rank, all_reduce);
  for (int i = 0; i < 100; ++i) ranks.round();
  ranks.abort(0);
  REQUIRE(ranks.run_until([&] {
    return ranks.count_notices(0, command::NoticeType::kGroupAborted) == 1 &&
           ranks.count_notices(1, command::NoticeType::kGroupAborted) == 1;
  }));
  for (int i = 0; i < 1'000; ++i) ranks.round(20'000);  // lanes publish every 10 ms
  for (const std::uint16_t rank : {0, 1}) {
    CHECK_FALSE(ranks.rank(rank).client->completion());
    CHECK(ranks.rank(rank).datapath->lane(0).published().at(0).status.in_backend > 0);
  }
  gives_back = true;
  for (const std::uint16_t rank : {0, 1}) {
    std::optional<ipc::CompletionEntry> answer;
    REQUIRE(ranks.run_until([&] {
      answer = ranks.rank(rank).client->completion();
      return answer.has_value();
    }));
    CHECK(static_cast<ErrorCode>(answer->status) == ErrorCode::kAborted);
    CHECK(ranks.count_notices(rank, command::NoticeType::kGroupAborted) == 1);
  }
  ranks.leave_and_check();
}

TEST_CASE("leaving with an unfinished op answers it, and gives everything back") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  AllReduceCase all_reduce(2, 1, 100'000, DataType::kFloat32, RedOp::kSum, 1, true);
  ranks.post(0, all_reduce);
  for (int i = 0; i < 50; ++i) ranks.round();
  ranks.leave_and_check();
  const auto answer = ranks.rank(0).client->completion();
  REQUIRE(answer);
  CHECK(static_cast<ErrorCode>(answer->status) == ErrorCode::kAborted);
}

TEST_CASE("a neighbour that is silent is found, and the status says who was waited for") {
  TwoRanksOptions options;
  options.silence_ns = 100'000'000;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  ranks.run_until([] { return false; }, 2 * Lane::kPublicationNs);
  const auto published = ranks.rank(0).datapath->lane(0).published();
  REQUIRE(published.size() == 1);
  CHECK(published[0].group_handle == TwoRanks::kGroup);
  CHECK(published[0].status.state == collective::ShardState::kFormed);
  // Only rank 0's lane goes on.
  for (TimeNs end = ranks.now + 300'000'000; ranks.now < end; ranks.now += 100'000) {
    ranks.rank(0).datapath->lane(0).poll_once(ranks.now);
    ranks.ports().drain();
  }
  ranks.take_notices(0);
  REQUIRE(ranks.count_notices(0, command::NoticeType::kGroupAborted) == 1);
  const AbortReason& reason = ranks.rank(0).notices.back().reason;
  CHECK(reason.code == AbortCode::kSilence);
  CHECK(reason.culprit_rank == 1);
}

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

TEST_CASE("a lane keeps which version a neighbour speaks that a group waits for") {
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

TEST_CASE("groups that rest are woken by whatever they can wait for") {
  TwoRanksOptions options;
  options.max_groups = 3;
  options.window_packets = 8;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  REQUIRE(ranks.form_another());
  REQUIRE(ranks.form_another());
  // Rounds so close together that no timer of a shard comes due.
  const auto rest = [&] {
    for (int round = 0; round < 10'000; ++round) ranks.round(20);
  };
  const auto completed = [&](std::uint16_t r) { return ranks.rank(r).client->completion(); };
  for (int op = 0; op < 4; ++op) {
    // By a command here, by packets there, at ranks that call at different times.
    const auto first = static_cast<std::uint16_t>(op % 2);
    AllReduceCase sum(2, 1, op % 2 == 0 ? 5'000 : 7, DataType::kFloat32, RedOp::kSum, 3 + op,
                      op == 3);
    rest();
    ranks.post(first, sum);
    rest();
    ranks.post(static_cast<std::uint16_t>(1 - first), sum);
    for (std::uint16_t r = 0; r < 2; ++r) {
      std::optional<ipc::CompletionEntry> entry;
      // Far sooner than a group that rests is asked in any case.
      REQUIRE(ranks.run_until([&] { return (entry = completed(r)).has_value(); }, 1'000'000, 200));
      CHECK(static_cast<ErrorCode>(entry->status) == ErrorCode::kOk);
      CHECK(sum.wrong(r) == "");
    }
  }
  // Pings go on meanwhile: silence of neighbours that rest is none.
  REQUIRE_FALSE(ranks.run_until(
      [&] { return ranks.count_notices(0, command::NoticeType::kGroupAborted) > 0; },
      5'000'000'000));
  // By a request, and by what a neighbour says of it.
  rest();
  ranks.abort(0);
  for (std::uint16_t r = 0; r < 2; ++r) {
    REQUIRE(ranks.run_until(
        [&] { return ranks.count_notices(r, command::NoticeType::kGroupAborted) == 1; }, 1'000'000,
        200));
  }
  rest();
  ranks.leave_and_check();
}

TEST_CASE("what is forged in a neighbour's name wakes no group that rests") {
  TwoRanksOptions options;
  options.token = 0x1122334455667788;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  const auto rest = [&] {
    for (int round = 0; round < 10'000; ++round) ranks.round(20);
  };
  rest();
  Lane& lane = ranks.rank(1).datapath->lane(0);
  REQUIRE(lane.groups_awake() == 0);
  const collective::Shard& shard = *ranks.rank(1).plan.shards[0].shard;
  const auto dropped = [&] {
    return shard.counters().drops[static_cast<std::size_t>(wire::Drop::kToken)];
  };
  const std::uint32_t id = wire::group_tag(shard.config().key);
  // Right in all but the token.
  inject(ranks, ping_frame(ranks, id));
  lane.poll_once(ranks.now += 20);
  CHECK(dropped() == 1);
  CHECK(lane.groups_awake() == 0);
  // By another source with the token.
  inject(ranks, ping_frame(ranks, id, TwoRanks::kPort, "10.0.0.2", options.token, "10.0.0.66"));
  lane.poll_once(ranks.now += 20);
  CHECK(lane.groups_awake() == 0);
  CHECK(shard.counters().drops[static_cast<std::size_t>(wire::Drop::kForeign)] == 1);
  // With both it is the neighbour's.
  inject(ranks, ping_frame(ranks, id, TwoRanks::kPort, "10.0.0.2", options.token));
  lane.poll_once(ranks.now += 20);
  CHECK(lane.groups_awake() == 1);
  ranks.leave_and_check();
}

TEST_CASE("the silence of a neighbour is counted in full while the group rests") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  ranks.run_until([] { return false; }, 100'000'000);
  // Rank 1 is gone: only rank 0's lane goes on.
  const TimeNs gone_at = ranks.now;
  while (ranks.count_notices(0, command::NoticeType::kGroupAborted) == 0 &&
         ranks.now < gone_at + 10'000'000'000) {
    ranks.rank(0).datapath->lane(0).poll_once(ranks.now);
    ranks.take_notices(0);
    ranks.now += 5'000;
  }
  CHECK(ranks.now - gone_at < 2'000'000'000 + 60'000'000);
  CHECK(ranks.now - gone_at > 2'000'000'000 - 60'000'000);
  ranks.leave_and_check();
}

TEST_CASE("a lane that has as many groups as it can hold says so") {
  TwoRanks ranks;  // two groups at most
  {
    command::GroupPlan empty;
    empty.group_handle = 55;
    command::Request group;
    group.type = command::RequestType::kAddGroup;
    group.group_handle = 55;
    group.plan = &empty;
    ranks.send(0, 0, group);
    REQUIRE(ranks.run_until([&] { return ranks.all_back(0); }));
    REQUIRE(ranks.count_notices(0, command::NoticeType::kGroupAborted) == 1);
    CHECK(ranks.rank(0).notices.front().reason.code == AbortCode::kFormation);
    command::Request leave;
    leave.type = command::RequestType::kLeaveGroup;
    leave.group_handle = 55;
    ranks.send(0, 0, leave);
    REQUIRE(ranks.run_until([&] { return ranks.all_back(0); }));
  }
}

TEST_CASE("frames that are lost, repeated, late and damaged leave the reference's bits") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  const FaultSettings faults{.seed = 5,
                             .drop = 0.02,
                             .duplicate = 0.05,
                             .reorder = 0.05,
                             .corrupt = 0.02,
                             .delay = 0.02,
                             .delay_us = 100};
  for (std::uint16_t r = 0; r < 2; ++r) {
    command::Request request;
    request.type = command::RequestType::kSetFaults;
    request.faults = faults;
    ranks.send_all_lanes(r, request);
  }
  std::vector<AllReduceCase> cases;
  for (const std::uint64_t count : {1u, 1'000u, 100'000u, 77'777u}) {
    cases.emplace_back(2, 1, count, DataType::kFloat32, RedOp::kSum, count, false);
  }
  check_all(ranks, cases);
  const port::FaultCounters& counters = ranks.rank(0).datapath->lane(0).fault_counters(0);
  CHECK(counters.dropped > 0);
  CHECK(counters.duplicated > 0);
  CHECK(counters.reordered > 0);
  CHECK(counters.corrupted > 0);
  CHECK(counters.delayed > 0);
  CHECK(ranks.rank(0).plan.shards[0].shard->counters().retransmissions > 0);
  const std::uint64_t frames = counters.frames;
  for (std::uint16_t r = 0; r < 2; ++r) {
    command::Request request;
    request.type = command::RequestType::kSetFaults;
    ranks.send_all_lanes(r, request);
  }
  AllReduceCase after(2, 1, 50'000, DataType::kFloat32, RedOp::kSum, 9, false);
  for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, after);
  REQUIRE(ranks.run_until([&] { return ranks.rank(0).client->completion().has_value(); }));
  CHECK(counters.held == 0);
  CHECK(counters.frames - frames < 100);  // what was on the way when they were cleared
  ranks.leave_and_check();
}
