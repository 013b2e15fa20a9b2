// SPDX-License-Identifier: BSD-3-Clause
// The bounds of the neighbor table: strangers, floods, and who goes when it is full.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "neighbors_support.h"

using namespace gradwire;
using namespace gradwire::port;
using namespace gradwire::port::test;

TEST_CASE("strangers get so many answers, whoever floods, and neighbors theirs all the same") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  neighbors.on_frame(kReplyFrame, 0);
  while (!taken(neighbors).empty()) {
  }
  auto stranger = kTheirRequest;
  stranger[31] = std::byte{77};  // 10.0.0.77
  int answers = 0;
  for (int i = 0; i < 100'000; ++i) {
    neighbors.on_frame(stranger, i * 10'000);  // for a second
    while (!taken(neighbors).empty()) ++answers;
  }
  CHECK(answers >= 1'000);
  CHECK(answers <= 1'000 + static_cast<int>(ReplyLimit::kBurst));
  neighbors.on_frame(kTheirRequest, 1'000 * kMs);
  CHECK_FALSE(taken(neighbors).empty());
}

TEST_CASE("the table and the answers are bounded") {
  auto small = config();
  small.max_entries = 1;
  Neighbors neighbors(small);
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(neighbors.resolve(address("10.0.0.3"), 0).error().code == ErrorCode::kResourceExhausted);

  for (int i = 0; i < 10'000; ++i) neighbors.on_frame(kTheirRequest, i * kMs);
  int frames = 0;
  while (!taken(neighbors).empty()) ++frames;
  CHECK(frames == 256);
}

namespace {

wire::IpAddress made_up(unsigned i) {
  wire::IpAddress ip = address("10.0.0.0");
  ip.bytes[2] = static_cast<std::uint8_t>(i / 256);
  ip.bytes[3] = static_cast<std::uint8_t>(i % 256);
  return ip;
}

/// A reply from `ip`, whose MAC address ends like its number.
std::vector<std::byte> reply_from(const wire::IpAddress& ip) {
  auto frame = kReplyFrame;
  for (std::size_t i = 0; i < 4; ++i) frame[28 + i] = std::byte{ip.bytes[i]};
  return frame;
}

/// Asks for addresses that nobody has, until all have failed.
void ask_in_vain(Neighbors& neighbors, unsigned first, unsigned count, TimeNs& now) {
  for (unsigned i = first; i < first + count; ++i) REQUIRE(neighbors.resolve(made_up(i), now));
  for (int i = 0; i < 20; ++i) {
    neighbors.poll(now += 100 * kMs);
    while (!taken(neighbors).empty()) {
    }
  }
}

NeighborsConfig wide(std::size_t max_entries) {
  auto out = config();
  out.ip = address("10.0.0.1");
  out.prefix_bits = 16;
  out.max_entries = max_entries;
  return out;
}

}  // namespace

TEST_CASE("addresses that nobody has keep no neighbor out") {
  Neighbors neighbors(wide(1024));
  TimeNs now = 0;
  ask_in_vain(neighbors, 256, 1024, now);
  CHECK(neighbors.size() == 1024);
  const wire::IpAddress real = address("10.0.0.2");
  REQUIRE(neighbors.resolve(real, now));
  neighbors.on_frame(kReplyFrame, now);
  CHECK(neighbors.lookup(real));
  CHECK(neighbors.size() == 1024);
  CHECK(neighbors.counters().evicted == 1);
  // The one that was asked for first went.
  CHECK(neighbors.state(made_up(256)) == NeighborState::kUnknown);
  CHECK(neighbors.state(made_up(257)) == NeighborState::kFailed);

  // However many are made up, the living neighbor stays.
  for (int i = 1; i < 10; ++i) ask_in_vain(neighbors, 256 + 1024u * i, 1023, now);
  CHECK(neighbors.lookup(real));
  CHECK(neighbors.size() == 1024);
}

TEST_CASE("a full table keeps what is static, used by a group, or waited for") {
  Neighbors neighbors(wide(4));
  neighbors.add_static(address("10.0.0.7"), mac("02:00:00:00:00:07"));
  TimeNs now = 0;
  const wire::IpAddress used = address("10.0.0.2");
  REQUIRE(neighbors.resolve(used, now));
  neighbors.on_frame(kReplyFrame, now);
  REQUIRE(neighbors.hold(used));
  CHECK_FALSE(neighbors.hold(address("10.0.0.99")));
  // A group still uses it, though it answers no more and the link was down.
  neighbors.forget_learnt();
  ask_in_vain(neighbors, 256, 1, now);

  const wire::IpAddress waited = address("10.0.0.3");
  REQUIRE(neighbors.resolve(waited, now));
  now += 999 * kMs;
  REQUIRE(neighbors.resolve(address("10.0.0.4"), now));  // in the made-up one's place
  CHECK(neighbors.counters().evicted == 1);
  const auto none = neighbors.resolve(address("10.0.0.5"), now);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::kResourceExhausted);
  CHECK(none.error().message.find("the table of neighbors is full") != std::string::npos);
  CHECK(neighbors.state(waited) == NeighborState::kIncomplete);

  neighbors.release(used);
  REQUIRE(neighbors.resolve(address("10.0.0.5"), now));
  CHECK(neighbors.state(used) == NeighborState::kUnknown);
  CHECK(neighbors.state(waited) == NeighborState::kIncomplete);
  CHECK(neighbors.lookup(address("10.0.0.7")));
}

// A router that answers for every address (proxy ARP) makes each of them look alive.
TEST_CASE("addresses that answer but that no group uses go last, and do go") {
  Neighbors neighbors(wide(3));
  TimeNs now = 0;
  for (unsigned i = 2; i < 4; ++i) {
    REQUIRE(neighbors.resolve(made_up(i), now + i));
    neighbors.on_frame(reply_from(made_up(i)), now + i);
    REQUIRE(neighbors.lookup(made_up(i)));
  }
  ask_in_vain(neighbors, 256, 1, now);
  REQUIRE(neighbors.resolve(made_up(4), now));
  CHECK(neighbors.state(made_up(256)) == NeighborState::kUnknown);
  CHECK(neighbors.lookup(made_up(2)));
  REQUIRE(neighbors.resolve(made_up(5), now));
  CHECK(neighbors.state(made_up(2)) == NeighborState::kUnknown);
  CHECK(neighbors.lookup(made_up(3)));
}
