// SPDX-License-Identifier: BSD-3-Clause
// The rules of neighbors/greetings.h, one case each: rank 0 of two, which have two paths.
#include "collective/neighbors/greetings.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "collective/neighbors/neighbors.h"
#include "sim/world/addresses.h"
#include "sim/world/pool.h"

namespace gradwire::collective {
namespace {

constexpr std::uint8_t kSources = 4;
constexpr std::uint64_t kHere = 71;
constexpr std::uint64_t kThere = 72;

ShardConfig two_ranks(rte_mempool* pool) {
  ShardConfig config;
  config.key = {0x1234, 5};
  config.nranks = 2;
  config.payload_bytes = 64;
  config.table_digest = 9;
  config.incarnation = kHere;
  config.downstream.incarnation = config.upstream.incarnation = kThere;
  config.downstream.ip = config.upstream.ip = sim::ip_of(1);
  config.downstream.frame = config.upstream.frame = sim::frame_between(0, 1, 0);
  config.downstream.others = {{sim::ip_of(1, 1), sim::frame_between(0, 1, 0, 1), 1}};
  config.downstream.sources = {kSources, true};
  config.packet_pool = config.control_pool = pool;
  return config;
}

/// A hello as it went out.
struct Sent {
  wire::PacketType type{};
  PathIndex path = 0;
  std::uint8_t source = 0;  ///< as HelloBody's
  std::uint8_t heard = 0;
  friend bool operator==(const Sent&, const Sent&) = default;
};

struct Greeter {
  ~Greeter() {
    sent();
    CHECK(pool.in_use() == 0);
  }

  void form() {
    group.become(ShardState::kForming);
    group.become(ShardState::kFormed);
    greetings.on_formed();
  }
  /// What the rank there says.
  [[nodiscard]] wire::HelloBody hello(std::uint8_t source = 1, std::uint8_t heard = 0) const {
    wire::HelloBody body;
    body.key = config.key;
    body.incarnation = kThere;
    body.table_digest = config.table_digest;
    body.payload_bytes = config.payload_bytes;
    body.from_rank = 1;
    body.nranks = 2;
    body.members = config.members_said();
    body.lanes = 1;
    body.source = source;
    body.heard_source = heard;
    return body;
  }
  void hear(std::uint8_t source, PathIndex path = 0, std::uint8_t heard = 0) {
    REQUIRE(greetings.is_of(0, hello(source, heard)));
    REQUIRE_FALSE(greetings.on_hello(0, hello(source, heard), path, now));
  }
  std::vector<Sent> greet() {
    greetings.greet(out);
    return sent();
  }
  std::vector<Sent> answer() {
    greetings.answer(now, out);
    return sent();
  }
  /// Takes what lies in the outbox.
  std::vector<Sent> sent() {
    std::vector<Sent> all;
    OutboxSide& box = out.any();
    for (std::size_t i = 0; i < box.count; ++i) {
      rte_mbuf* const frame = box.frames[i];
      wire::FrameView view;
      wire::Packet packet;
      const std::span bytes(rte_pktmbuf_mtod(frame, const std::byte*), frame->pkt_len);
      CHECK(wire::parse_frame(bytes, view) == wire::Drop::kNone);
      CHECK(wire::decode(view.payload, packet) == wire::Drop::kNone);
      all.push_back({packet.common.type, static_cast<PathIndex>(frame->port), packet.hello.source,
                     packet.hello.heard_source});
      rte_pktmbuf_free(frame);
    }
    box.count = 0;
    return all;
  }

  sim::Pool pool{64, 512};
  ShardConfig config = two_ranks(pool.get());
  Group group;
  OpTable ops{4, 64, 0, 1};
  ShardCounters counters;
  PacketBuffers buffers{config, config.downstream.frame.bytes()};
  Neighbors neighbors{config, group, buffers, ops, counters};
  Greetings greetings{config, group, neighbors.links(), ops};
  LinkEnd& end = neighbors.link(0).end;
  Outbox out;
  TimeNs now = 1'000'000'000;
};

constexpr auto kHello = wire::PacketType::kHello;
constexpr auto kHelloAck = wire::PacketType::kHelloAck;

}  // namespace

TEST_CASE("hellos go by the first path at first, then by all, until one is answered") {
  Greeter rank;
  rank.group.become(ShardState::kForming);
  std::vector<Sent> all;
  for (int i = 0; i < 32; ++i) {
    REQUIRE(rank.greetings.greets_anyone());
    const std::vector<Sent> sent = rank.greet();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].type == kHello);
    CHECK(sent[0].heard == 0);
    all.push_back(sent[0]);
  }
  for (int i = 0; i < 8; ++i) CHECK(all[i].path == 0);
  // Two from the path's own source port, and then from one after the other.
  CHECK(all[0].source == 1);
  CHECK(all[1].source == 1);
  CHECK(all[2].source == 3);
  CHECK(all[3].source == 4);
  for (PathIndex path = 0; path < 2; ++path) {
    for (std::uint8_t source = 1; source <= kSources; ++source) {
      CHECK(std::count(all.begin() + 8, all.end(), Sent{kHello, path, source, 0}) == 3);
    }
  }
  REQUIRE_FALSE(rank.greetings.on_hello_ack(0, rank.hello(), 0));
  CHECK_FALSE(rank.greetings.greets_anyone());
  CHECK(rank.greet().empty());
}

TEST_CASE("hellos that nobody answers for long come less and less often") {
  Greeter rank;
  rank.config.timeouts.hello_interval_ns = 20;
  rank.group.become(ShardState::kForming);
  std::vector<TimeNs> spacings;
  for (int i = 0; i < 80; ++i) {
    REQUIRE(rank.greet().size() == 1);
    spacings.push_back(rank.greetings.spacing());
  }
  CHECK(std::count(spacings.begin(), spacings.begin() + 63, 20) == 63);
  CHECK(spacings[63] == 40);
  CHECK(spacings[64] == 80);
  CHECK(std::count(spacings.begin() + 65, spacings.end(), 160) == 15);
  // Eight at least in a silence limit.
  rank.config.timeouts.silence_ns = 8 * 90;
  CHECK(rank.greetings.spacing() == 90);
  rank.config.timeouts.silence_ns = 8 * 10;
  CHECK(rank.greetings.spacing() == 20);
}

TEST_CASE("a hello that finds no room is none") {
  Greeter rank;
  rank.config.timeouts.hello_interval_ns = 20;
  rank.group.become(ShardState::kForming);
  rank.out.any().room = 0;
  for (int i = 0; i < 80; ++i) REQUIRE(rank.greet().empty());
  CHECK(rank.greetings.spacing() == 20);
  rank.out.any().room = 1;
  CHECK(rank.greet() == std::vector<Sent>{{kHello, 0, 1, 0}});
}

TEST_CASE("the first way that answers is taken, and the other rank hears of it") {
  Greeter rank;
  rank.group.become(ShardState::kForming);
  REQUIRE_FALSE(rank.greetings.on_hello_ack(0, rank.hello(2, 3), 1));
  CHECK(rank.end.path() == 1);
  CHECK(rank.end.source_of(1) == 2);
  REQUIRE(rank.greetings.owes_answers());
  CHECK(rank.answer() == std::vector<Sent>{{kHello, 1, 3, 2}});
  CHECK_FALSE(rank.greetings.owes_answers());
  // Later ones change nothing.
  REQUIRE_FALSE(rank.greetings.on_hello_ack(0, rank.hello(4, 1), 0));
  CHECK(rank.end.path() == 1);
  CHECK(rank.end.source_of(1) == 2);
  CHECK_FALSE(rank.greetings.owes_answers());
}

TEST_CASE("links are open when a hello came and one was answered") {
  Greeter rank;
  rank.group.become(ShardState::kForming);
  CHECK_FALSE(rank.greetings.all_open());
  rank.hear(1);
  CHECK_FALSE(rank.greetings.all_open());
  REQUIRE_FALSE(rank.greetings.on_hello_ack(0, rank.hello(), 0));
  CHECK(rank.greetings.all_open());
}

TEST_CASE("a hello is answered by its path, each source port once") {
  Greeter rank;
  rank.group.become(ShardState::kForming);
  rank.hear(1, 1);
  CHECK(rank.greetings.is_to_answer(0, 1, 1));
  CHECK_FALSE(rank.greetings.is_to_answer(0, 0, 1));
  rank.hear(1, 1);
  rank.hear(3, 0);
  CHECK(rank.answer() == std::vector<Sent>{{kHelloAck, 0, 1, 3}, {kHelloAck, 1, 1, 1}});
  CHECK_FALSE(rank.greetings.is_to_answer(0, 1, 1));
  CHECK(rank.answer().empty());
}

TEST_CASE("answers come from one source port after the other until one is heard") {
  Greeter rank;
  rank.form();
  std::vector<Sent> others;
  for (std::uint8_t i = 0; i < kSources; ++i) {
    rank.hear(2);
    const std::vector<Sent> sent = rank.answer();
    REQUIRE_FALSE(sent.empty());
    CHECK(sent[0] == Sent{kHelloAck, 0, 1, 2});
    others.insert(others.end(), sent.begin() + 1, sent.end());
  }
  CHECK(others ==
        std::vector<Sent>{{kHelloAck, 0, 2, 2}, {kHelloAck, 0, 3, 2}, {kHelloAck, 0, 4, 2}});
  rank.hear(2, 0, 1);
  CHECK(rank.answer() == std::vector<Sent>{{kHelloAck, 0, 1, 2}});
}

TEST_CASE("an answer that finds no room is owed, and the port's own is not sent twice") {
  Greeter rank;
  rank.group.become(ShardState::kForming);
  rank.hear(1);
  REQUIRE(rank.answer().size() == 1);
  rank.hear(1);
  rank.out.any().room = 1;
  CHECK(rank.answer() == std::vector<Sent>{{kHelloAck, 0, 1, 1}});
  REQUIRE(rank.greetings.owes_answers());
  CHECK(rank.answer() == std::vector<Sent>{{kHelloAck, 0, 2, 1}});
  CHECK_FALSE(rank.greetings.owes_answers());
}

TEST_CASE("while the port is behind the first hello alone is answered, and no other for a while") {
  Greeter rank;
  rank.form();
  rank.out.any().room = 4;
  rank.hear(3);
  rank.hear(2);
  CHECK(rank.answer() == std::vector<Sent>{{kHelloAck, 0, 1, 3}});
  CHECK_FALSE(rank.greetings.owes_answers());
  rank.hear(2);
  CHECK(rank.answer().empty());
  CHECK_FALSE(rank.greetings.owes_answers());
  rank.now += rank.config.timeouts.silence_ns / 64;
  rank.hear(2);
  CHECK(rank.answer() == std::vector<Sent>{{kHelloAck, 0, 2, 2}});
}

TEST_CASE("a hello is of this group, this rank and that daemon") {
  Greeter rank;
  CHECK(rank.greetings.is_of(0, rank.hello()));
  wire::HelloBody other = rank.hello();
  SECTION("epoch") { ++other.key.epoch; }
  SECTION("rank") { other.from_rank = 0; }
  SECTION("to another") { other.to_rank = 1; }
  SECTION("daemon") { other.incarnation = kHere; }
  CHECK_FALSE(rank.greetings.is_of(0, other));
}

TEST_CASE("a hello with another table ends the group, and says what differs") {
  Greeter rank;
  rank.group.become(ShardState::kForming);
  wire::HelloBody other = rank.hello();
  std::string differs;
  SECTION("ranks") {
    other.nranks = 3;
    differs = "its table of the group differs: ranks 3 there and 2 here";
  }
  SECTION("lanes") {
    other.lanes = 4;
    differs = "its table of the group differs: lanes 4 there and 1 here";
  }
  SECTION("nothing but the digest") {
    other.table_digest = 8;
    differs = "its table of the group differs in an entry";
  }
  const Greetings::Cause cause = rank.greetings.on_hello(0, other, 0, rank.now);
  REQUIRE(cause);
  CHECK(cause->code == AbortCode::kFormation);
  CHECK(cause->culprit_rank == 1);
  CHECK(std::string(cause->detail).starts_with(differs));
  CHECK_FALSE(rank.greetings.owes_answers());
  CHECK_FALSE(rank.end.greeted());
}

TEST_CASE("what does not fit is kept while the group forms, and from a neighbor's address alone") {
  Greeter rank;
  const GroupKey other_epoch{rank.config.key.group_id, 6};
  const auto tell = [&](const wire::IpAddress& from) {
    rank.greetings.on_other_version(from, 1);
    rank.greetings.on_other_group(from, other_epoch);
    rank.greetings.on_unfit_hello(from, 7);
  };
  const Unfit& unfit = rank.greetings.unfit(0);
  rank.group.become(ShardState::kForming);
  SECTION("a neighbor's") {
    tell(sim::ip_of(1));
    CHECK(unfit.version == 1);
    CHECK(unfit.other_epoch);
    CHECK(unfit.epoch == 6);
    CHECK(unfit.hello);
    CHECK(unfit.says_rank == 7);
    ShardStatus status;
    rank.greetings.fill(status);
    CHECK(status.downstream_unfit.epoch == 6);
    CHECK(status.upstream_unfit.epoch == 6);
    return;
  }
  SECTION("a stranger's") { tell(sim::ip_of(2)); }
  SECTION("after it has formed") {
    rank.group.become(ShardState::kFormed);
    tell(sim::ip_of(1));
  }
  SECTION("another group's") {
    rank.greetings.on_other_group(sim::ip_of(1), {rank.config.key.group_id + 1, 6});
  }
  CHECK(unfit.version == 0);
  CHECK_FALSE(unfit.other_epoch);
  CHECK_FALSE(unfit.hello);
}

}  // namespace gradwire::collective
