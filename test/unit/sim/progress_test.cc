// SPDX-License-Identifier: BSD-3-Clause
#include "sim/seeds/progress.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/units.h"

using namespace gradwire;
using namespace gradwire::sim;

namespace {

constexpr TimeNs kSecond = 1'000'000'000;

/// Three ranks and two ops. Rank 2 posts one after the other, and so does not post the second
/// before it is through with the first.
struct Ring final : Observer {
  explicit Ring(TimeNs late_ns = 0)
      : world({.hosts = 3}, trace, *this), job(world, group(), ops(late_ns), {2, 2, 1}) {
    job.attach(world.add_group(group()));
    for (std::uint16_t rank = 0; rank < 3; ++rank) world.start(0, rank);
    REQUIRE(world.run_until([this] { return formed == 3; }, kSecond));
  }
  static GroupOptions group() {
    GroupOptions group;
    group.hosts = {0, 1, 2};
    group.shard.payload_bytes = 64;
    group.shard.max_chunks = 1024;
    group.shard.timeouts.silence_ns = 600 * kSecond;
    return group;
  }
  static std::vector<PlannedOp> ops(TimeNs late_ns) {
    std::vector<PlannedOp> two(2);
    for (PlannedOp& op : two) {
      op.plan.count = 96;
      op.plan.datatype = DataType::kInt32;
      op.late_ns = {0, late_ns, 0};
    }
    return two;
  }
  void on_formed(GroupId, std::uint16_t rank) override {
    ++formed;
    job.on_formed(rank);
  }
  void on_done(GroupId, std::uint16_t rank, std::uint64_t op_seq) override {
    job.on_done(rank, op_seq);
  }
  /// Watches for that time. @return the first thing that was wrong.
  std::string look_for(TimeNs duration) {
    for (const TimeNs end = world.now() + duration; world.now() < end;) {
      const std::string wrong = progress.look();
      if (!wrong.empty()) return wrong;
      world.run_for(Progress::kLookNs);
    }
    return {};
  }

  int formed = 0;
  Trace trace;
  World world;
  Job job;
  Progress progress{world, job};
};

}  // namespace

TEST_CASE("ops that end are progress") {
  Ring ring;
  CHECK(ring.look_for(20 * kSecond) == "");
  CHECK(ring.job.finished());
  CHECK(ring.progress.longest_op_ns() < kSecond);
}

TEST_CASE("a ring that only pings is none, and the op and the ranks are named") {
  Ring ring;
  ring.world.network().set_down(1, 2, true);
  const std::string wrong = ring.look_for(20 * kSecond);
  INFO(wrong);
  CHECK(wrong.find("no progress: op 1 has not ended at rank 0, 1, 2, though every rank") == 0);
  CHECK(wrong.find("nothing moved for 5000 ms") != std::string::npos);
  CHECK(ring.world.counter(&collective::ShardCounters::pings_sent) > 100);
  // The way is open again, and the same op ends.
  ring.world.network().heal();
  ring.world.run_for(2 * kSecond);
  CHECK(ring.progress.look() == "");
  CHECK(ring.job.finished());
}

TEST_CASE("a link that stands still is named by its ranks, if none may") {
  Ring ring;
  ring.progress.limit_still(kSecond / 5);
  ring.world.network().set_down(1, 2, true);
  const std::string wrong = ring.look_for(20 * kSecond);
  INFO(wrong);
  CHECK(wrong.find("no progress: rank 1 has chunks in flight to rank 2 on lane 0") == 0);
  CHECK(ring.progress.longest_still_ns() < kSecond);
}

TEST_CASE("what is known to be cut is not waited for") {
  Ring ring;
  ring.world.network().set_down(1, 2, true);
  const TimeNs until = ring.world.now() + 20 * kSecond;
  ring.progress.disturbed_until(until);
  CHECK(ring.look_for(20 * kSecond) == "");
  CHECK_FALSE(ring.job.finished());
  CHECK(ring.look_for(10 * kSecond).find("no progress: op 1") == 0);
}

TEST_CASE("a client that has not posted is waited for however long it takes") {
  Ring ring(30 * kSecond);
  CHECK(ring.look_for(20 * kSecond) == "");
  CHECK(ring.job.clients()[0].posted == 2);
  CHECK(ring.job.clients()[0].done == 0);
  CHECK(ring.look_for(60 * kSecond) == "");
  CHECK(ring.job.finished());
}
