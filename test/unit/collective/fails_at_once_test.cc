// SPDX-License-Identifier: BSD-3-Clause
// Shards on a backend that works at once, as the CPU's does, and fails: nothing starts after that.
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "collective/data_runs.h"
#include "collective/shard.h"
#include "sim/world/addresses.h"
#include "sim/world/pool.h"

using namespace gradwire;
using namespace gradwire::collective;

namespace {

/// Fails at the first entry of a kind, and does the others.
class FailsAtOnce final : public reduce::Backend {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "fails at once"; }
  [[nodiscard]] std::size_t submit(std::span<const reduce::Entry> entries) noexcept override {
    return cpu_->submit(entries);
  }
  [[nodiscard]] std::size_t poll(std::span<reduce::Completion> done) noexcept override {
    return cpu_->poll(done);
  }
  [[nodiscard]] bool runs_at_once() const noexcept override { return true; }
  [[nodiscard]] bool run(const reduce::Entry& entry) noexcept override {
    done_after += failed ? 1 : 0;
    const bool fails = fails_at == entry.kind || (left > 0 && --left == 0);
    if (!fails || failed) return cpu_->run(entry);
    failed = true;
    return false;
  }
  [[nodiscard]] const reduce::BackendCounters& counters() const noexcept override {
    return cpu_->counters();
  }

  std::optional<reduce::Kind> fails_at;
  int left = 0;  ///< or at the so manieth of any kind
  bool failed = false;
  int done_after = 0;  ///< entries after the one that failed

 private:
  std::unique_ptr<reduce::Backend> cpu_ = reduce::make_cpu_backend(1);
};

struct Rank {
  FailsAtOnce* backend = nullptr;
  std::unique_ptr<Shard> shard;
  std::vector<float> memory = std::vector<float>(4'096, 1);
  std::vector<Event> events;

  void start(ShardConfig config, TimeNs now) {
    config.payload_bytes = 256;
    auto fails = std::make_unique<FailsAtOnce>();
    backend = fails.get();
    auto made = Shard::create(config, std::move(fails));
    REQUIRE(made);
    shard = std::move(*made);
    shard->start(now);
  }
  void post(std::uint64_t op_seq, std::uint64_t count, TimeNs now) {
    OpSpec spec;
    spec.op_seq = op_seq;
    spec.count = count;
    spec.inputs[0] = spec.outputs[0] = reinterpret_cast<std::byte*>(memory.data());
    REQUIRE(shard->post(spec, now) == PostResult::kOk);
  }
  void poll(TimeNs now, Outbox& out) {
    (void)shard->poll(now, true, out);
    Event event;
    while (shard->pop_event(event)) events.push_back(event);
  }
  [[nodiscard]] int had(EventType type) const {
    return static_cast<int>(
        std::count_if(events.begin(), events.end(), [&](auto& e) { return e.type == type; }));
  }
};

/// Two ranks, and packets that go from one to the other when the test says so.
class Two {
 public:
  Two() {
    for (std::uint16_t r = 0; r < 2; ++r) {
      ShardConfig config;
      config.key = {7, 1};
      config.nranks = 2;
      config.rank = r;
      config.incarnation = 100u + r;
      config.upstream.incarnation = config.downstream.incarnation = 101u - r;
      config.downstream.frame = config.upstream.frame = sim::frame_between(r, 1 - r, 0);
      config.downstream.ip = config.upstream.ip = sim::ip_of(1 - r);
      config.packet_pool = config.control_pool = pools[r].get();
      config.exchange_bytes = 0;  // An exchange spills nothing.
      config.window_packets = 16;
      config.transit_packets = 2;
      ranks[r].start(config, now);
    }
  }
  ~Two() {
    for (Rank& rank : ranks) rank.shard.reset();
    for (const sim::Pool& pool : pools) CHECK(pool.in_use() == 0);
  }
  /// Both ranks, and all that they send.
  void rounds(int count) {
    for (; count > 0; --count) {
      for (std::size_t r = 0; r < 2; ++r) {
        for (rte_mbuf* frame : poll(r)) deliver(frame, 1 - r);
      }
    }
  }
  /// @return what the rank sends.
  std::vector<rte_mbuf*> poll(std::size_t r) {
    now += 100'000;
    const auto out = std::make_unique<Outbox>();
    ranks[r].poll(now, *out);
    std::vector<rte_mbuf*> frames;
    for (const OutboxSide& box : out->boxes) {
      frames.insert(frames.end(), box.frames.begin(),
                    box.frames.begin() + static_cast<std::ptrdiff_t>(box.count));
    }
    return frames;
  }
  /// To that rank, which is not asked to do anything about it.
  void deliver(rte_mbuf* frame, std::size_t to) {
    wire::FrameView view;
    wire::Packet packet;
    const std::span bytes(rte_pktmbuf_mtod(frame, const std::byte*), frame->pkt_len);
    REQUIRE(wire::parse_frame(bytes, view) == wire::Drop::kNone);
    REQUIRE(wire::decode(view.payload, packet) == wire::Drop::kNone);
    Shard& shard = *ranks[to].shard;
    shard.on_packet(frame, packet, shard.source_of(packet.common, view.source_ip), false, now);
  }

  /// As a lane does: data in runs. Some frames come twice.
  void deliver_burst(const std::vector<rte_mbuf*>& burst, std::size_t to, std::mt19937_64& random) {
    Shard& shard = *ranks[to].shard;
    const auto one = [&](rte_mbuf* frame) {
      const std::span bytes(rte_pktmbuf_mtod(frame, const std::byte*), frame->pkt_len);
      if (runs[to].take(0, bytes, frame)) return;
      runs[to].end(now);
      wire::FrameView view;
      wire::Packet packet;
      REQUIRE(wire::parse_frame(bytes, view) == wire::Drop::kNone);
      REQUIRE(wire::decode(view.payload, packet) == wire::Drop::kNone);
      const PacketSource from = shard.source_of(packet.common, view.source_ip);
      if (packet.common.type == wire::PacketType::kData && from.drop == wire::Drop::kNone) {
        runs[to].begin(shard, from, packet, false, 0, bytes, view, frame);
      } else {
        shard.on_packet(frame, packet, from, false, now);
      }
    };
    for (rte_mbuf* frame : burst) {
      rte_mbuf* const copy =
          random() % 8 == 0 ? rte_pktmbuf_copy(frame, spare.get(), 0, UINT32_MAX) : nullptr;
      one(frame);
      if (copy != nullptr) one(copy);
    }
    runs[to].end(now);
    shard.flush(now);
  }

  sim::Pool spare{512, 1'024};
  std::array<DataRuns, 2> runs;
  std::array<sim::Pool, 2> pools{sim::Pool{512, 1'024}, sim::Pool{512, 1'024}};
  std::array<Rank, 2> ranks;
  TimeNs now = 1'000'000;
};

}  // namespace

TEST_CASE("no op of a rank on its own is done after a fold has failed") {
  Rank alone;
  TimeNs now = 1'000;
  ShardConfig config;
  config.nranks = 1;
  alone.start(config, now);
  alone.backend->fails_at = reduce::Kind::kLocal;
  for (std::uint64_t op_seq = 1; op_seq <= 3; ++op_seq) alone.post(op_seq, 100, now);
  for (int i = 0; i < 10; ++i) {
    Outbox out;
    alone.poll(now += 100'000, out);
  }
  CHECK(alone.backend->failed);
  CHECK(alone.backend->done_after == 0);
  CHECK(alone.had(EventType::kAborted) == 1);
  CHECK(alone.had(EventType::kOpDone) == 0);
  CHECK(alone.shard->reason().op_seq == 1);
}

TEST_CASE("nothing of a rank starts after a spilled chunk's load has failed") {
  Two two;
  two.rounds(20);
  for (Rank& each : two.ranks) {
    REQUIRE(each.had(EventType::kFormed) == 1);
    each.backend->fails_at = reduce::Kind::kLoadFromOutput;
    each.post(1, 4'096, two.now);
  }
  // So many arrive at once that not all have room to go on.
  for (int i = 0; i < 50 && !two.ranks[0].backend->failed && !two.ranks[1].backend->failed; ++i) {
    std::vector<rte_mbuf*> frames;
    for (int poll = 0; poll < 4; ++poll) {
      for (rte_mbuf* frame : two.poll(1)) frames.push_back(frame);
    }
    for (rte_mbuf* frame : frames) two.deliver(frame, 0);
    for (rte_mbuf* frame : two.poll(0)) two.deliver(frame, 1);
  }
  const Rank& rank = two.ranks[two.ranks[0].backend->failed ? 0 : 1];
  REQUIRE(rank.backend->failed);
  CHECK(rank.shard->reason().code == AbortCode::kReduceFailed);
  CHECK(rank.backend->done_after == 0);
}

// Bursts, in which an op's last packets and the next op's first come together, packets that come
// twice, and buffers that run out: wherever a fold fails, the rank does nothing after that.
TEST_CASE("wherever a fold fails at once, nothing of the rank is done after that") {
  std::mt19937_64 random(20261129);
  int failures = 0;
  int dry = 0;
  for (int fails_at = 1; fails_at <= 260; ++fails_at) {
    CAPTURE(fails_at);
    Two two;
    two.rounds(20);
    for (std::uint64_t op_seq = 1; op_seq <= 2; ++op_seq) {
      for (Rank& each : two.ranks) each.post(op_seq, op_seq == 1 ? 4'096 : 4'001, two.now);
    }
    Rank& fails = two.ranks[fails_at % 2];
    fails.backend->left = fails_at;
    for (int i = 0; i < 400 && !fails.backend->failed; ++i) {
      if (fails.had(EventType::kOpDone) == 2) break;
      for (std::size_t r = 0; r < 2; ++r) {
        if (random() % 4 == 0) {
          two.pools[r].withhold(two.pools[r].withhold_all_but(random() % 4));
          ++dry;
        } else {
          two.pools[r].withhold(0);
        }
        std::vector<rte_mbuf*> burst;
        for (std::uint64_t polls = random() % 5; polls > 0; --polls) {
          for (rte_mbuf* frame : two.poll(r)) burst.push_back(frame);
        }
        two.deliver_burst(burst, 1 - r, random);
      }
    }
    for (sim::Pool& pool : two.pools) {
      pool.withhold(0);
      CHECK(pool.double_frees() == 0);
    }
    CHECK(fails.backend->done_after == 0);
    if (!fails.backend->failed) continue;
    ++failures;
    two.rounds(20);
    CHECK(fails.backend->done_after == 0);
    for (Rank& each : two.ranks) {
      CHECK(each.had(EventType::kAborted) == 1);
      CHECK(each.shard->reason().code == AbortCode::kReduceFailed);
      CHECK(each.shard->reason().culprit_rank == fails_at % 2);
    }
  }
  CHECK(failures > 150);
  CHECK(dry > 100);
}
