// SPDX-License-Identifier: BSD-3-Clause
// Whole lanes: two datapaths in one process, driven round by round in virtual time (embedded mode).
// Ops, aborts, and ports that are slow.
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

TEST_CASE("a neighbor that is silent is found, and the status says who was waited for") {
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
