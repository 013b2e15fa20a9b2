// SPDX-License-Identifier: BSD-3-Clause
#include "transport/receiver.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <vector>

#include "support/seed.h"

using namespace gradwire;
using namespace gradwire::transport;
using Verdict = Receiver::Verdict;

namespace {

std::vector<wire::AckRange> ranges_of(Receiver& receiver, TimeNs now = 0) {
  wire::AckHeader ack;
  receiver.write_ack(now, ack);
  return {ack.ranges.begin(), ack.ranges.begin() + ack.range_count};
}

/// What an acknowledgement of exactly `numbers` says, newest first.
std::vector<wire::AckRange> reference_ranges(const std::set<std::uint64_t>& numbers) {
  std::vector<wire::AckRange> ranges;
  for (auto it = numbers.rbegin(); it != numbers.rend(); ++it) {
    if (!ranges.empty() && ranges.back().first == *it + 1) {
      ranges.back().first = *it;
    } else {
      ranges.push_back({.first = *it, .last = *it});
    }
  }
  return ranges;
}

}  // namespace

TEST_CASE("nothing received: no range, nothing due") {
  Receiver receiver({});
  CHECK(receiver.check(1) == Verdict::kNew);
  CHECK_FALSE(receiver.ack_due(1'000'000'000, true));
  CHECK(receiver.deadline() == kNever);
  CHECK(ranges_of(receiver).empty());
}

TEST_CASE("ranges and verdicts are those of a set, whatever the order") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    Receiver receiver({});
    std::set<std::uint64_t> reference;
    std::vector<std::uint64_t> numbers;
    // Up to 400 numbers leave at most 200 ranges, within what a receiver keeps.
    const std::uint64_t count = 1 + random() % 400;
    for (std::uint64_t n = 1; n <= count; ++n)
      if (random() % 8 != 0) numbers.push_back(n);
    if (round % 3 == 0) {
      std::shuffle(numbers.begin(), numbers.end(), random);
    } else {
      // Mostly in order, as a network has it.
      for (std::size_t i = 1; i < numbers.size(); ++i)
        if (random() % 10 == 0) std::swap(numbers[i], numbers[random() % i]);
    }
    for (const std::uint64_t n : numbers) {
      REQUIRE(receiver.check(n) == Verdict::kNew);
      receiver.accept(0, n, false);
      reference.insert(n);
      if (random() % 16 != 0) continue;
      const std::uint64_t probe = 1 + random() % count;
      REQUIRE(receiver.check(probe) ==
              (reference.count(probe) != 0 ? Verdict::kDuplicate : Verdict::kNew));
      auto want = reference_ranges(reference);
      want.resize(std::min(want.size(), wire::kMaxAckRanges));
      REQUIRE(ranges_of(receiver) == want);
    }
    REQUIRE(receiver.packets_accepted() == numbers.size());
  }
}

TEST_CASE("holes that the sender has forgotten are not reported for ever") {
  Receiver receiver({.reported_numbers = 1'000});
  std::uint64_t n = 0;
  const auto in_order = [&](int packets) {
    for (int i = 0; i < packets; ++i) receiver.accept(0, ++n, false);
  };
  for (int loss = 0; loss < 70; ++loss) {
    in_order(100);
    ++n;
  }
  CHECK(ranges_of(receiver).size() == 10);
  in_order(998);
  CHECK(ranges_of(receiver).size() == 2);
  in_order(2);
  CHECK(ranges_of(receiver).size() == 1);
  // It is still known what came, and what did not.
  CHECK(receiver.check(100) == Verdict::kDuplicate);
  CHECK(receiver.check(101) == Verdict::kNew);
}

TEST_CASE("an acknowledgement reports the newest ranges, and they decode") {
  Receiver receiver({});
  for (std::uint64_t n = 1; n <= 200; n += 2) receiver.accept(0, n, false);
  wire::AckHeader ack;
  receiver.write_ack(0, ack);
  REQUIRE(ack.range_count == wire::kMaxAckRanges);
  CHECK(ack.ranges[0] == wire::AckRange{.first = 199, .last = 199});
  CHECK(ack.ranges[63] == wire::AckRange{.first = 73, .last = 73});
  std::array<std::byte, 2048> room;
  const std::size_t bytes = wire::encode_ack(room, {.packet_number = 1}, ack);
  wire::Packet packet;
  CHECK(wire::decode(std::span<const std::byte>(room).first(bytes), packet) == wire::Drop::kNone);
}

TEST_CASE("what fell off the list is too old, and nothing is ever new twice") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  Receiver receiver({});
  std::set<std::uint64_t> accepted;
  std::uint64_t too_old = 0;
  for (int i = 0; i < 50'000; ++i) {
    // A third of the numbers around a moving front, spread widely: hundreds of holes.
    const std::uint64_t n = 1 + static_cast<std::uint64_t>(i) / 2 + random() % 3'000;
    const Verdict verdict = receiver.check(n);
    if (accepted.count(n) != 0) REQUIRE(verdict != Verdict::kNew);
    if (verdict == Verdict::kDuplicate) REQUIRE(accepted.count(n) != 0);
    if (verdict == Verdict::kTooOld) ++too_old;
    if (verdict != Verdict::kNew) continue;
    receiver.accept(0, n, false);
    accepted.insert(n);
    if (i % 64 != 0) continue;
    for (const wire::AckRange& range : ranges_of(receiver))
      for (std::uint64_t k = range.first; k <= range.last; ++k) REQUIRE(accepted.count(k) != 0);
  }
  CHECK(too_old > 100);
  CHECK(receiver.check(1) == Verdict::kTooOld);
}

TEST_CASE("the list is full at 256 ranges; then the oldest goes") {
  Receiver receiver({});
  for (std::uint64_t i = 0; i < 256; ++i) receiver.accept(0, 10 + 2 * i, false);
  CHECK(receiver.check(1) == Verdict::kNew);
  CHECK(receiver.check(10) == Verdict::kDuplicate);

  SECTION("a newer number pushes the oldest range out") {
    receiver.accept(0, 10 + 2 * 256, false);
    CHECK(receiver.check(10) == Verdict::kTooOld);
    CHECK(receiver.check(11) == Verdict::kNew);
    CHECK(receiver.check(12) == Verdict::kDuplicate);
  }
  SECTION("a number below all is remembered by the floor") {
    receiver.accept(0, 5, false);
    CHECK(receiver.check(5) == Verdict::kTooOld);
    CHECK(receiver.check(4) == Verdict::kTooOld);
    CHECK(receiver.check(6) == Verdict::kNew);
    CHECK(receiver.check(10) == Verdict::kDuplicate);
  }
  SECTION("a number that joins two ranges makes room") {
    receiver.accept(0, 11, false);
    receiver.accept(0, 5, false);
    CHECK(receiver.check(5) == Verdict::kDuplicate);
    CHECK(receiver.check(4) == Verdict::kNew);
  }
}

TEST_CASE("in-order packets are acknowledged by count, by time, or when nothing else comes") {
  Receiver receiver({.ack_every_packets = 4, .max_ack_delay_ns = 1'000});
  for (std::uint64_t n = 1; n <= 3; ++n) receiver.accept(100 * static_cast<TimeNs>(n), n, false);
  CHECK_FALSE(receiver.ack_due(300, false));
  CHECK(receiver.ack_due(300, true));
  CHECK(receiver.deadline() == 1'100);
  CHECK_FALSE(receiver.ack_due(1'099, false));
  CHECK(receiver.ack_due(1'100, false));
  receiver.accept(400, 4, false);
  CHECK(receiver.ack_due(400, false));

  wire::AckHeader ack;
  receiver.write_ack(650, ack);
  CHECK(ack.delay_ns == 250);
  CHECK_FALSE(receiver.ack_due(10'000, true));
  CHECK(receiver.deadline() == kNever);
}

TEST_CASE("a hole, its filling, a duplicate and a request are answered at once") {
  Receiver receiver({.ack_every_packets = 100, .max_ack_delay_ns = 1'000'000});
  wire::AckHeader ack;
  receiver.accept(10, 1, false);
  CHECK_FALSE(receiver.ack_due(10, false));
  receiver.accept(20, 3, false);
  CHECK(receiver.ack_due(20, false));
  CHECK(receiver.deadline() <= 20);
  receiver.write_ack(20, ack);
  receiver.accept(30, 4, false);
  CHECK_FALSE(receiver.ack_due(30, false));
  receiver.accept(40, 2, false);
  CHECK(receiver.ack_due(40, false));
  receiver.write_ack(45, ack);
  CHECK(ack.delay_ns == 15);  // of the largest, 4, not of the last
  receiver.on_duplicate(50);
  CHECK(receiver.ack_due(50, false));
  receiver.write_ack(50, ack);
  receiver.request_ack();
  CHECK(receiver.ack_due(60, false));
  CHECK(receiver.deadline() <= 60);
  receiver.write_ack(60, ack);
  CHECK_FALSE(receiver.ack_due(70, true));
}

TEST_CASE("the first packet of all, if it is not number 1, shows a hole") {
  Receiver receiver({.ack_every_packets = 100, .max_ack_delay_ns = 1'000'000});
  receiver.accept(0, 2, false);
  CHECK(receiver.ack_due(0, false));
}

TEST_CASE("CE marks are counted, the delay saturates") {
  Receiver receiver({});
  receiver.accept(0, 1, true);
  receiver.accept(0, 2, false);
  receiver.accept(0, 3, true);
  wire::AckHeader ack;
  receiver.write_ack(60'000'000'000, ack);
  CHECK(ack.ecn_ce_count == 2);
  CHECK(ack.delay_ns == 0xffffffff);
  receiver.write_ack(-5, ack);  // a clock that went back
  CHECK(ack.delay_ns == 0);
}

TEST_CASE("packets that want no acknowledgement count as received, and make none due") {
  Receiver receiver({.ack_every_packets = 2, .max_ack_delay_ns = 1'000});
  for (const std::uint64_t number : {1, 2, 5, 9}) receiver.note(number);
  receiver.note(5);
  CHECK_FALSE(receiver.ack_due(1'000'000, true));
  CHECK(receiver.deadline() == kNever);
  CHECK(receiver.packets_accepted() == 0);
  CHECK(receiver.check(5) == Verdict::kDuplicate);
  CHECK(receiver.check(4) == Verdict::kNew);
  // One that follows them at once is in order; one that leaves a number out is not.
  receiver.accept(10, 10, false);
  CHECK_FALSE(receiver.ack_due(10, false));
  receiver.accept(20, 12, false);
  CHECK(receiver.ack_due(20, false));
  CHECK(ranges_of(receiver) == std::vector<wire::AckRange>{{12, 12}, {9, 10}, {5, 5}, {1, 2}});
}

TEST_CASE("the delay counts from the newest packet that wants an acknowledgement") {
  Receiver receiver({});
  receiver.accept(1'000, 3, false);
  receiver.note(4);
  receiver.accept(1'500, 2, false);
  wire::AckHeader ack;
  receiver.write_ack(2'000, ack);
  CHECK(ack.delay_ns == 1'000);
  Receiver other({});
  other.note(7);
  other.write_ack(2'000, ack);
  CHECK(ack.delay_ns == 0);
}

TEST_CASE("numbers at the end of their range are told apart, too") {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  Receiver receiver({});
  receiver.accept(0, kMax, false);
  receiver.accept(0, kMax - 2, false);
  receiver.accept(0, 0, false);
  CHECK(receiver.check(kMax) == Verdict::kDuplicate);
  CHECK(receiver.check(kMax - 1) == Verdict::kNew);
  CHECK(receiver.check(0) == Verdict::kDuplicate);
  receiver.accept(0, kMax - 1, false);
  CHECK(ranges_of(receiver) == std::vector<wire::AckRange>{{kMax - 2, kMax}, {0, 0}});
}

TEST_CASE("a burst's numbers, told at once, do what they do one by one") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < 300; ++run) {
    Receiver one_by_one({});
    Receiver at_once({});
    std::uint64_t next = 1 + random() % 3;
    TimeNs now = 0;
    for (int burst = 0; burst < 30; ++burst) {
      now += 1 + static_cast<TimeNs>(random() % 300'000);
      const bool ecn_ce = random() % 4 == 0;
      AcceptedRun accepted(at_once, ecn_ce);
      const std::uint64_t packets = random() % 12;
      for (std::uint64_t i = 0; i < packets; ++i) {
        // Mostly in order; some are lost, some come late, some twice.
        std::uint64_t number = next++;
        if (random() % 8 == 0) next += random() % 3;
        if (random() % 6 == 0) number = 1 + random() % next;
        const Verdict verdict = one_by_one.check(number);
        REQUIRE(accepted.check(now, number) == verdict);
        if (verdict == Verdict::kNew && random() % 16 != 0) {
          one_by_one.accept(now, number, ecn_ce);
          accepted.accept(number);
        }
      }
      accepted.tell(now);
      REQUIRE(at_once.packets_accepted() == one_by_one.packets_accepted());
      REQUIRE(at_once.deadline() == one_by_one.deadline());
      REQUIRE(at_once.ack_due(now, false) == one_by_one.ack_due(now, false));
      if (random() % 3 == 0) {
        wire::AckHeader a;
        wire::AckHeader b;
        one_by_one.write_ack(now, a);
        at_once.write_ack(now, b);
        REQUIRE(std::vector(a.ranges.begin(), a.ranges.begin() + a.range_count) ==
                std::vector(b.ranges.begin(), b.ranges.begin() + b.range_count));
        REQUIRE(a.delay_ns == b.delay_ns);
        REQUIRE(a.ecn_ce_count == b.ecn_ce_count);
      }
    }
  }
}
