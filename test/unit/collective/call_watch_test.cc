// SPDX-License-Identifier: BSD-3-Clause
// Calls that no packet of an op shows: each acknowledgement says what was called.
#include "collective/ring/call_watch.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "support/ring_harness.h"

using namespace gradwire;
using namespace gradwire::test;
using collective::CallWatch;
using collective::OpSpec;
using collective::OpTable;

namespace {

OpSpec empty_call(std::uint64_t op_seq, Collective collective, std::uint32_t tag = 0,
                  DataType datatype = DataType::kFloat32,
                  std::uint32_t root = collective::kNoRoot) {
  OpSpec spec;
  spec.op_seq = op_seq;
  spec.collective = collective;
  spec.tag = tag;
  spec.datatype = datatype;
  spec.root = root;
  return spec;
}

struct CallPair {
  const char* name;
  OpSpec common;
  OpSpec other;
};

const std::vector<CallPair>& call_pairs() {
  using enum Collective;
  static const std::vector<CallPair> all = {
      {"barriers with two tags", empty_call(1, kBarrier, 1), empty_call(1, kBarrier, 2)},
      {"a barrier and an all-reduce", empty_call(1, kBarrier), empty_call(1, kAllReduce)},
      {"a barrier and a broadcast", empty_call(1, kBarrier),
       empty_call(1, kBroadcast, 0, DataType::kFloat32, 0)},
      {"datatypes", empty_call(1, kAllReduce), empty_call(1, kAllReduce, 0, DataType::kInt32)},
      {"tags", empty_call(1, kAllReduce, 0), empty_call(1, kAllReduce, 9)},
      {"collectives", empty_call(1, kAllReduce), empty_call(1, kAllGather)},
      {"an all-reduce and a reduce", empty_call(1, kAllReduce),
       empty_call(1, kReduce, 0, DataType::kFloat32, 0)},
      {"roots", empty_call(1, kBroadcast, 0, DataType::kFloat32, 0),
       empty_call(1, kBroadcast, 0, DataType::kFloat32, 1)},
  };
  return all;
}

RingOptions options_for_calls(std::uint16_t nranks, bool direct) {
  RingOptions options;
  options.nranks = nranks;
  options.shard.direct.op_bytes = direct ? 64u << 10 : 0;
  options.shard.max_active_ops = 64;
  return options;
}

/// A table in which ops of no elements were posted, all alike but for their tags.
class PostedTags {
 public:
  void post(std::uint32_t tag) {
    const OpSpec spec = empty_call(table.posted() + 1, Collective::kAllReduce, tag);
    REQUIRE(table.open(spec, collective::OpPlan{}) != nullptr);
  }
  OpTable table{512, 1};
};

}  // namespace

TEST_CASE("calls of no elements that differ end the group on every rank, by name") {
  for (const std::uint16_t nranks : {2, 3, 5}) {
    for (const bool direct : {false, true}) {
      for (const CallPair& pair : call_pairs()) {
        CAPTURE(nranks, direct, pair.name);
        RingHarness ring(options_for_calls(nranks, direct));
        REQUIRE(ring.form());
        for (std::uint16_t rank = 0; rank < nranks; ++rank) {
          ring.post(rank, rank == 1 ? pair.other : pair.common);
        }
        for (std::uint16_t rank = 0; rank < nranks; ++rank) {
          REQUIRE(ring.run_until([&] { return ring.aborted(rank); }, 1'000'000'000));
          const AbortReason& reason = ring.shard(rank).reason();
          CHECK(reason.code == AbortCode::kMismatch);
          CHECK(reason.op_seq == 1);
          const std::string detail = reason.detail;
          CHECK_THAT(detail, Catch::Contains("rank 1 called") && Catch::Contains(" called "));
          CHECK_THAT(detail, Catch::Contains(std::string(name_of(pair.other.collective))));
        }
        if (nranks == 2) CHECK_FALSE((ring.done(0, 1) || ring.done(1, 1)));
      }
    }
  }
}

TEST_CASE("of many ops of no elements the first that differs is named") {
  const std::uint16_t nranks = GENERATE(2, 3);
  const bool one_late = GENERATE(false, true);
  CAPTURE(nranks, one_late);
  RingHarness ring(options_for_calls(nranks, true));
  REQUIRE(ring.form());
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    if (one_late && rank + 1 == nranks) ring.run_for(20'000'000);
    for (std::uint64_t op_seq = 1; op_seq <= 40; ++op_seq) {
      const std::uint32_t tag = rank == 1 && op_seq >= 17 ? 1 : 0;
      ring.post(rank, empty_call(op_seq, Collective::kAllReduce, tag));
    }
  }
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.aborted(rank); }, 1'000'000'000));
    CHECK(ring.shard(rank).reason().code == AbortCode::kMismatch);
    CHECK(ring.shard(rank).reason().op_seq == 17);
  }
}

TEST_CASE("ops of no elements that all call alike end, whoever posts when") {
  const std::uint16_t nranks = GENERATE(2, 3, 5);
  const bool lossy = GENERATE(false, true);
  CAPTURE(nranks, lossy);
  RingOptions options = options_for_calls(nranks, false);
  if (lossy) options.loss = 0.2;
  RingHarness ring(options);
  REQUIRE(ring.form());
  constexpr std::uint64_t kOps = 30;
  for (std::uint64_t op_seq = 1; op_seq <= kOps; ++op_seq) {
    for (std::uint16_t rank = 0; rank < nranks; ++rank) {
      const Collective collective = op_seq % 3 == 0 ? Collective::kBarrier : Collective::kAllGather;
      // One rank posts them all at once, another waits for each.
      if (rank == 1 && op_seq > 1) continue;
      ring.post(rank, empty_call(op_seq, collective));
      for (std::uint64_t more = 2; rank == 1 && more <= kOps; ++more) {
        ring.post(rank,
                  empty_call(more, more % 3 == 0 ? Collective::kBarrier : Collective::kAllGather));
      }
    }
    REQUIRE(ring.run_until([&] { return ring.done(0, op_seq); }, 10'000'000'000));
  }
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, kOps); }, 10'000'000'000));
    CHECK_FALSE(ring.aborted(rank));
  }
}

TEST_CASE("the first of two rows of calls that differs is found by halves") {
  PostedTags here;
  PostedTags there;
  for (std::uint64_t op_seq = 1; op_seq <= 200; ++op_seq) {
    here.post(0);
    there.post(op_seq >= 77 ? 1 : 0);
  }
  CallWatch watch(here.table);
  watch.hear(there.table.say(0), 200);
  int questions = 0;
  for (std::uint64_t asked = watch.asks(0); asked != 0; asked = watch.asks(0)) {
    REQUIRE(++questions <= 9);
    watch.hear(there.table.say(asked), 200);
  }
  REQUIRE(watch.mismatch() != nullptr);
  CHECK(watch.mismatch()->op_seq == 77);
  CHECK(watch.mismatch()->tag == 1);
  CHECK(watch.agreed() == 76);
}

TEST_CASE("what the next rank called ahead is compared when it is posted here, or asked for") {
  PostedTags here;
  PostedTags there;
  CallWatch watch(here.table);
  for (int i = 0; i < 3; ++i) there.post(5);
  watch.hear(there.table.say(0), 3);
  here.post(5);
  watch.on_posted(1);
  CHECK(watch.agreed() == 0);
  CHECK(watch.asks(1) == 1);
  watch.hear(there.table.say(1), 3);
  CHECK(watch.agreed() == 1);
  CHECK(watch.asks(1) == 0);
  here.post(5);
  here.post(5);
  watch.on_posted(2);
  watch.on_posted(3);
  CHECK(watch.agreed() == 3);
}

TEST_CASE("an op that the next rank tells of no more is waited for no longer") {
  PostedTags here;
  PostedTags there;
  CallWatch watch(here.table);
  here.post(0);
  for (int i = 0; i < 400; ++i) there.post(0);
  watch.hear(there.table.say(0), 400);
  REQUIRE(watch.asks(1) == 1);
  watch.hear(there.table.say(1), 400);
  CHECK(watch.agreed() >= 1);
  CHECK(watch.asks(1) == 0);
}

TEST_CASE("who leaves says what it called in all") {
  PostedTags here;
  PostedTags there;
  CallWatch watch(here.table);
  there.post(0);
  there.post(1);
  here.post(0);
  watch.hear_last(2, there.table.digest(2).value());
  CHECK(watch.agreed() == 2);
  CHECK_FALSE(watch.differs_from_who_left());
  SECTION("the same") { here.post(1); }
  SECTION("something else") { here.post(2); }
  const bool same = here.table.digest(2) == there.table.digest(2);
  watch.on_posted(2);
  CHECK(watch.differs_from_who_left() == !same);
}

namespace {

/// Ranks 1 and 2 call the same, rank 0 something else; its acknowledgements get lost, and so do
/// those for it.
struct OneApart {
  RingHarness ring{options_for_calls(3, false)};
  OneApart() {
    REQUIRE(ring.form());
    ring.lose([](sim::HostId from, sim::HostId to, wire::PacketType type) {
      return type == wire::PacketType::kAck && (from == 0 || to == 0);
    });
  }
  void leave_done(std::uint16_t rank, std::uint64_t op_seq) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, op_seq); }, 1'000'000'000));
    ring.leave(rank);
    ring.run_for(20'000'000);
  }
};

}  // namespace

TEST_CASE("a barrier is not done because who called something else in its place has left") {
  OneApart apart;
  RingHarness& ring = apart.ring;
  ring.post(0, empty_call(1, Collective::kBarrier));
  for (const std::uint16_t rank : {1, 2}) {
    for (const std::uint64_t op_seq : {1, 2}) {
      ring.post(rank, empty_call(op_seq, Collective::kAllReduce));
    }
  }
  apart.leave_done(1, 2);
  CHECK_FALSE(ring.done(0, 1));
  ring.lose([](auto...) { return false; });
  REQUIRE(ring.run_until([&] { return ring.aborted(0) && ring.aborted(2); }, 1'000'000'000));
  CHECK(ring.shard(0).reason().code == AbortCode::kMismatch);
  CHECK_FALSE(ring.done(0, 1));
}

TEST_CASE("of who left having called something else, that is said, and not that it left") {
  OneApart apart;
  RingHarness& ring = apart.ring;
  for (const std::uint64_t op_seq : {1, 2}) {
    ring.post(0, empty_call(op_seq, Collective::kAllReduce, 7));
  }
  for (const std::uint16_t rank : {1, 2}) ring.post(rank, empty_call(1, Collective::kAllReduce));
  apart.leave_done(1, 1);
  REQUIRE(ring.aborted(0));
  CHECK(ring.shard(0).reason().code == AbortCode::kMismatch);
  CHECK(ring.shard(0).reason().op_seq == 1);
  CHECK_THAT(ring.shard(0).reason().detail,
             Catch::Contains("rank 1 has left, and had called something else than rank 0 in one of "
                             "the ops 1 to 1"));
}
