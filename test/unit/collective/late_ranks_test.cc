// SPDX-License-Identifier: BSD-3-Clause
// Many ranks of which most are late: what is lost is sent again all the same, a rank that does not
// answer is found, and a round costs no more than with few.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collective/direct/direct.h"
#include "collective/links/peer_links.h"
#include "reduce/backend.h"
#include "ring_sums.h"
#include "sim/world/addresses.h"
#include "sim/world/pool.h"

namespace gradwire::test::late_ranks {

using namespace collective;
using sim::OpCase;

namespace {

constexpr TimeNs kOneMs = 1'000'000;
constexpr std::uint32_t kPayload = 256;

/// Silence limit and ping interval of lanes that run busy: 150 and 15 ms.
RingOptions busy_options(std::uint16_t nranks) {
  RingOptions options;
  options.nranks = nranks;
  options.payload_bytes = 64;
  options.pool_mbufs = 640;
  options.step_ns = 20'000;
  options.shard.direct.op_bytes = 64u << 10;
  options.shard.exchange_bytes = 0;
  options.shard.timeouts.silence_ns = 150 * kOneMs;
  options.shard.timeouts.ping_interval_ns = 15 * kOneMs;
  options.shard.sender.max_pto_ns = 15 * kOneMs;
  return options;
}

/// Rank 0 of a group, whose other ranks are what the test says.
struct LoneRank {
  explicit LoneRank(std::uint16_t nranks, TimeNs silence = 1'500 * kOneMs,
                    TimeNs ping = 50 * kOneMs)
      : packets(sim::PoolBank::instance().take(512, 1024)),
        control(sim::PoolBank::instance().take(512, 1024)) {
    config.nranks = nranks;
    config.payload_bytes = kPayload;
    config.direct.op_bytes = 64u << 10;
    config.exchange_bytes = 0;
    config.timeouts.silence_ns = silence;
    config.timeouts.ping_interval_ns = ping;
    config.sender.max_pto_ns = std::min<TimeNs>(200 * kOneMs, silence / 10);
    config.packet_pool = packets->get();
    config.control_pool = control->get();
    for (std::uint16_t rank = 0; rank < nranks; ++rank) {
      PeerAddress peer;
      peer.ip = sim::ip_of(rank);
      peer.frame = sim::frame_between(0, rank, 0);
      config.peers.push_back(peer);
    }
    config.downstream.frame = config.peers[1].frame;
    ends = std::make_unique<PeerEnds>(config, ring, counters);
    links = std::make_unique<PeerLinks>(config, *ends);
    buffers = std::make_unique<PacketBuffers>(config, config.downstream.frame.bytes());
    ops = std::make_unique<OpTable>(16, 1024);
    folds = std::make_unique<FoldQueue>(reduce::make_cpu_backend(128), 128, 1);
    told_order = std::make_unique<ToldOrder>(config);
    direct =
        std::make_unique<Direct>(config, *links, *buffers, *ops, *folds, *told_order, counters);
    input.resize(4096);
    output.resize(4096);
  }
  void post(Collective collective, std::uint32_t root = kNoRoot) {
    OpSpec spec;
    spec.op_seq = ops->posted() + 1;
    spec.count = 8;
    spec.collective = collective;
    spec.root = root;
    spec.inputs[0] = input.data();
    spec.outputs[0] = output.data();
    const OpPlan plan =
        plan_op(config.shape_group(), 0, 1, kPayload,
                {spec.collective, spec.datatype, spec.root, spec.count, spec.redop});
    REQUIRE(plan.shape == Shape::kDirect);
    REQUIRE(direct->admit(plan, spec));
    Op* op = ops->open(spec, plan);
    REQUIRE(op != nullptr);
    REQUIRE(direct->open(*op, now) != Direct::Progress::kFailed);
  }
  /// A receipt or an inquiry comes from a rank.
  void hear(std::uint16_t rank, wire::PacketType type, wire::Receipt receipt) {
    wire::Packet packet;
    packet.common.type = type;
    packet.common.from_rank = rank;
    packet.common.packet_number = ++numbers[rank];
    packet.receipt = receipt;
    links->came(packet.common);
    (void)direct->hear(packet, now);
  }
  /// One round of the lane. @param on_sent  (rank, packet)
  template <class OnSent>
  void round(TimeNs ns, OnSent&& on_sent) {
    now += ns;
    links->count(ns);
    if (links->look(now)) {
      if (const auto silent = links->take_silent()) found.push_back(*silent);
    }
    Outbox out;
    if (direct->run(now, out)) ++busy_rounds;
    if (const auto silent = links->take_silent()) found.push_back(*silent);
    for (OutboxSide& side : out.boxes) {
      for (std::size_t i = 0; i < side.count; ++i) {
        rte_mbuf* frame = side.frames[i];
        const auto* bytes = rte_pktmbuf_mtod(frame, const std::byte*);
        const std::size_t ahead = config.downstream.frame.bytes();
        const auto to = static_cast<std::uint16_t>(
            (std::to_integer<unsigned>(bytes[32]) << 8 | std::to_integer<unsigned>(bytes[33])) - 1);
        wire::Packet packet;
        REQUIRE(wire::decode({bytes + ahead, frame->data_len - ahead}, packet) ==
                wire::Drop::kNone);
        on_sent(to, packet);
        rte_pktmbuf_free(frame);
      }
    }
  }

  std::unique_ptr<sim::Pool> packets;
  std::unique_ptr<sim::Pool> control;
  ShardConfig config;
  ShardCounters counters;
  Links ring;
  std::unique_ptr<PeerEnds> ends;
  std::unique_ptr<PeerLinks> links;
  std::unique_ptr<PacketBuffers> buffers;
  std::unique_ptr<OpTable> ops;
  std::unique_ptr<FoldQueue> folds;
  std::unique_ptr<ToldOrder> told_order;
  std::unique_ptr<Direct> direct;
  std::vector<std::byte> input;
  std::vector<std::byte> output;
  std::map<std::uint16_t, std::uint64_t> numbers;
  std::vector<PeerSilence> found;
  std::uint64_t busy_rounds = 0;
  TimeNs now = kOneMs;
};

/// A question's number, and to whom it went.
using Question = std::pair<std::uint16_t, std::uint64_t>;

wire::Receipt answer_to(const Question& question) {
  return {.echo = static_cast<std::uint32_t>(question.second)};
}

}  // namespace

TEST_CASE("a lost chunk is sent again in time though 1,022 ranks are late with the next op") {
  constexpr std::uint16_t kRanks = 1'023;
  constexpr std::uint16_t kLacks = 500;
  LoneRank root(kRanks);
  root.post(Collective::kBroadcast, 0);
  root.post(Collective::kBroadcast, 0);
  const TimeNs begin = root.now;
  const TimeNs until = begin + 20'000 * kOneMs;
  int came = 0;  // of op 1 for the rank that lacks it; the first time it is lost
  TimeNs heard_at = begin;
  std::vector<Question> to_answer;
  while (came < 2 && root.now < until) {
    for (const Question& question : std::exchange(to_answer, {})) {
      wire::Receipt receipt = answer_to(question);
      receipt.entered = 1;
      receipt.received = question.first == kLacks ? 0 : 1;
      root.hear(question.first, wire::PacketType::kReceipt, receipt);
      if (question.first == kLacks) heard_at = root.now;
    }
    // It asks, by the same rules, when it has heard nothing for a fifth of the limit.
    if (root.now - heard_at >= 300 * kOneMs) {
      heard_at = root.now;
      root.hear(kLacks, wire::PacketType::kInquiry, {.entered = 1, .received = 0});
    }
    root.round(100'000, [&](std::uint16_t to, const wire::Packet& packet) {
      const bool first_op =
          packet.common.type == wire::PacketType::kContribution && packet.data.op_seq == 1;
      if (first_op && to == kLacks) ++came;
      if (packet.common.type == wire::PacketType::kInquiry || (first_op && to != kLacks)) {
        to_answer.emplace_back(to, packet.common.packet_number);
      }
      if (packet.common.type == wire::PacketType::kReceipt && to == kLacks) heard_at = root.now;
    });
  }
  CHECK(came == 2);
  CHECK(root.now - begin <= 3 * root.config.sender.max_pto_ns);
  CHECK(root.found.empty());
}

TEST_CASE("a rank that does not answer is found in time though all others are late") {
  struct Limits {
    TimeNs silence;
    TimeNs ping;
  };
  const Limits limits =
      GENERATE(Limits{1'500 * kOneMs, 50 * kOneMs}, Limits{150 * kOneMs, 15 * kOneMs});
  constexpr std::uint16_t kRanks = 1'023;
  constexpr std::uint16_t kMute = 40;
  LoneRank rank(kRanks, limits.silence, limits.ping);
  for (std::uint16_t other = 1; other < kRanks; ++other) rank.links->hear(other);
  rank.post(Collective::kAllReduce);
  const TimeNs begin = rank.now;
  std::vector<Question> to_answer;
  while (rank.found.empty() && rank.now < begin + 20 * limits.silence) {
    for (const Question& question : std::exchange(to_answer, {})) {
      rank.hear(question.first, wire::PacketType::kReceipt, answer_to(question));
    }
    rank.round(limits.silence / 1'500, [&](std::uint16_t to, const wire::Packet& packet) {
      if (packet.common.type == wire::PacketType::kInquiry && to != kMute)
        to_answer.emplace_back(to, packet.common.packet_number);
    });
  }
  REQUIRE_FALSE(rank.found.empty());
  CHECK(rank.found[0].rank == kMute);
  CAPTURE((rank.now - begin) / kOneMs);
  CHECK(rank.now - begin <= 2 * limits.silence);
}

TEST_CASE("most rounds that wait for late ranks look at none of them") {
  constexpr std::uint16_t kRanks = 1'023;
  LoneRank rank(kRanks);
  for (std::uint16_t other = 1; other < kRanks; ++other) {
    for (int i = 0; i < 50; ++i) rank.links->sample(other, 20'000 + other * 100);
  }
  rank.post(Collective::kAllReduce);
  std::vector<Question> to_answer;
  std::uint64_t rounds = 0;
  rank.busy_rounds = 0;
  for (const TimeNs end = rank.now + 2'000 * kOneMs; rank.now < end; ++rounds) {
    for (const Question& question : std::exchange(to_answer, {})) {
      rank.hear(question.first, wire::PacketType::kReceipt, answer_to(question));
    }
    rank.round(50'000, [&](std::uint16_t to, const wire::Packet& packet) {
      if (packet.common.type == wire::PacketType::kInquiry)
        to_answer.emplace_back(to, packet.common.packet_number);
    });
  }
  CHECK(rank.busy_rounds < rounds / 10);
}

// All wait for an owner's sum, to which one part is lost: no rank has done anything wrong.
TEST_CASE("ops in two steps of 200 ranks end though ranks post to different depths") {
  constexpr std::uint16_t kRanks = 200;
  constexpr std::uint16_t kLacks = 100;
  RingOptions options = busy_options(kRanks);
  options.shard.direct.two_step_bytes = 64u << 10;
  RingHarness ring(options);
  REQUIRE(ring.form());
  int lost = 0;
  ring.lose([&](sim::HostId from, sim::HostId to, wire::PacketType type) {
    return from == 0 && to == kLacks && type == wire::PacketType::kContribution && lost++ == 0;
  });
  OpCase one(kRanks, 1, {.count = 16u * kRanks, .seed = 1});
  OpCase two(kRanks, 1, {.count = 16u * kRanks, .seed = 2});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) ring.post(rank, one.spec(rank, 1));
  ring.post(0, two.spec(0, 2));
  const TimeNs begin = ring.now();
  REQUIRE(ring.run_until(
      [&] {
        for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
          if (!ring.done(rank, 1) && !ring.aborted(rank)) return false;
        }
        return true;
      },
      2'000 * kOneMs));
  CHECK(lost > 1);
  CHECK(ring.counter(&ShardCounters::ops_two_step) >= kRanks);
  CHECK(ring.now() - begin < 100 * kOneMs);
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) ring.post(rank, two.spec(rank, 2));
  const TimeNs second = ring.now();
  CHECK(ring.run_until(
      [&] {
        for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
          if (!ring.done(rank, 2)) return false;
        }
        return true;
      },
      2'000 * kOneMs));
  CHECK(ring.now() - second < 100 * kOneMs);
  CHECK_FALSE(ring.aborted(0));
}

}  // namespace gradwire::test::late_ranks
