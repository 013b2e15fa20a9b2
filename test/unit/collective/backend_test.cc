// SPDX-License-Identifier: BSD-3-Clause
// Shards on backends that finish later than they are asked, as a GPU does, that fail, or that are
// stuck.
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

/// Keeps entries until it is told to do them, last to first, or to fail them.
class HeldBackend final : public reduce::Backend {
 public:
  explicit HeldBackend(std::size_t room) : room_(room) {}
  [[nodiscard]] const char* name() const noexcept override { return "held"; }
  [[nodiscard]] std::size_t submit(std::span<const reduce::Entry> entries) noexcept override {
    const std::size_t taken = std::min(entries.size(), room_ - held_.size());
    held_.insert(held_.end(), entries.begin(),
                 entries.begin() + static_cast<std::ptrdiff_t>(taken));
    return taken;
  }
  [[nodiscard]] std::size_t poll(std::span<reduce::Completion> done) noexcept override {
    if (!verdict) return 0;
    std::size_t count = 0;
    for (; count < done.size() && !held_.empty(); ++count) {
      if (*verdict) {
        (void)cpu_->submit({&held_.back(), 1});
        (void)cpu_->poll({&done[count], 1});
      } else {
        done[count] = {held_.back().cookie, false};
      }
      held_.pop_back();
    }
    return count;
  }
  [[nodiscard]] const reduce::BackendCounters& counters() const noexcept override {
    return cpu_->counters();
  }
  [[nodiscard]] std::size_t holds() const { return held_.size(); }

  std::optional<bool> verdict;  ///< of what is held: none yet, done, failed

 private:
  std::size_t room_;
  std::vector<reduce::Entry> held_;
  std::unique_ptr<reduce::Backend> cpu_ = reduce::make_cpu_backend(1);
};

/// A rank on its own: all of its work is the backend's.
struct Alone {
  HeldBackend* backend = nullptr;
  std::unique_ptr<collective::Shard> shard;
  std::vector<float> input;
  std::vector<float> output;
  TimeNs now = 1'000;
  std::vector<collective::EventType> events;

  explicit Alone(std::size_t room, std::size_t floats = 1'000) : input(floats, 2), output(floats) {
    collective::ShardConfig config;
    config.nranks = 1;
    config.payload_bytes = 256;
    config.batch_entries = 8;
    config.pending_entries = 64;
    config.timeouts.leave_ns = 1'000'000;
    auto held = std::make_unique<HeldBackend>(room);
    backend = held.get();
    auto made = collective::Shard::create(config, std::move(held));
    REQUIRE(made);
    shard = std::move(*made);
    shard->start(now);
    collective::OpSpec spec;
    spec.op_seq = 1;
    spec.count = floats;
    spec.inputs[0] = reinterpret_cast<const std::byte*>(input.data());
    spec.outputs[0] = reinterpret_cast<std::byte*>(output.data());
    REQUIRE(shard->post(spec, now) == collective::PostResult::kOk);
  }
  void poll(int rounds = 20) {
    for (int i = 0; i < rounds; ++i) {
      collective::Outbox out;
      now += 100'000;
      (void)shard->poll(now, true, out);
      collective::Event event;
      while (shard->pop_event(event)) events.push_back(event.type);
    }
  }
  [[nodiscard]] bool had(collective::EventType type) const {
    return std::find(events.begin(), events.end(), type) != events.end();
  }
};

}  // namespace

TEST_CASE("an op is done when the backend is, not before, and in whatever order it is") {
  Alone alone(16);  // less room than the shard would fill: the rest waits
  alone.poll();
  CHECK(alone.backend->holds() == 16);
  CHECK_FALSE(alone.had(collective::EventType::kOpDone));
  CHECK(alone.shard->status(alone.now).in_backend >= 16);
  CHECK(alone.shard->status(alone.now).backend_name == std::string("held"));
  // Somebody has to look again soon, since nobody tells when the backend is through.
  CHECK(alone.shard->deadline(alone.now) <= alone.now + 100'000);
  alone.backend->verdict = true;
  alone.poll();
  CHECK(alone.had(collective::EventType::kOpDone));
  CHECK(alone.output == alone.input);
  CHECK(alone.shard->status(alone.now).in_backend == 0);
}

TEST_CASE("a failed batch aborts the group, once nothing is in the backend any more") {
  Alone alone(16);
  alone.poll();
  alone.backend->verdict = false;
  alone.poll();
  CHECK(alone.had(collective::EventType::kAborted));
  CHECK_FALSE(alone.had(collective::EventType::kOpDone));
  CHECK(alone.shard->reason().code == AbortCode::kReduceFailed);
  CHECK(alone.shard->reason().op_seq == 1);
  CHECK(alone.backend->holds() == 0);
}

TEST_CASE("memory that a stuck backend has is let go when it comes back, however the group ends") {
  const bool aborts = GENERATE(false, true);
  Alone alone(16);
  alone.poll();
  if (aborts) {
    AbortReason reason;
    reason.code = AbortCode::kClientAbort;
    alone.shard->abort(reason, alone.now);
  }
  alone.shard->leave(alone.now);
  alone.poll(200);  // twenty times the bound for leaving
  CHECK(alone.backend->holds() == 16);
  CHECK_FALSE(alone.had(collective::EventType::kClosed));
  CHECK_FALSE(alone.had(collective::EventType::kAborted));
  alone.backend->verdict = true;
  alone.poll();
  CHECK(alone.had(collective::EventType::kAborted));
  CHECK(alone.had(collective::EventType::kClosed));
}

TEST_CASE("a slow backend makes neighbors wait for credit; no packet is dropped for it") {
  for (const double chance : {0.5, 0.05, 0.01}) {
    RingOptions options;
    options.nranks = 3;
    options.slow_backend = chance;
    options.shard.batch_entries = 16;
    options.shard.window_packets = 32;
    options.shard.transit_packets = 32;
    options.shard.pending_entries = collective::pending_entries_wanted(options.shard);
    RingHarness ring(options);
    REQUIRE(ring.form());
    AllReduceCase all(3, 1, 60'000, DataType::kFloat32, RedOp::kSum, 3, true);
    for (std::uint16_t r = 0; r < 3; ++r) ring.post(r, all.spec(r, 1));
    INFO("chance per poll " << chance);
    for (std::uint16_t r = 0; r < 3; ++r) {
      REQUIRE(ring.run_until([&] { return ring.done(r, 1) || ring.aborted(r); }, 60'000'000'000));
      REQUIRE_FALSE(ring.aborted(r));
      CHECK(all.wrong(r) == "");
    }
    CHECK(ring.drops(wire::Drop::kNoBuffer) == 0);
    CHECK(ring.leaked_mbufs() == 0);
  }
}

TEST_CASE("a barrier begins though the backend has no place, with whatever shape", "[backend]") {
  constexpr std::uint16_t kRanks = 5;
  for (const std::uint16_t gathered_ranks : {64, 4}) {
    RingOptions options;
    options.nranks = kRanks;
    options.shard.direct.op_bytes = 128u << 10;
    options.shard.direct.gathered_ranks = gathered_ranks;
    options.shard.direct.gathered_bytes = 64u << 10;
    options.slow_backend = 0.02;
    RingHarness ring(options);
    REQUIRE(ring.form());
    sim::OpCase large(kRanks, 1, {.count = 64 * options.payload_bytes / 4, .seed = 1});
    sim::OpCase barrier(kRanks, 1, {.count = 0, .seed = 2, .collective = Collective::kBarrier});
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      ring.post(rank, large.spec(rank, 1));
      ring.post(rank, barrier.spec(rank, 2));
    }
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      INFO("rank " << rank << ", gathered above " << gathered_ranks << " ranks");
      REQUIRE(ring.run_until([&] { return ring.done(rank, 1) && ring.done(rank, 2); }));
      REQUIRE(large.wrong(rank) == "");
    }
  }
}
