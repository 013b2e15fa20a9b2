// SPDX-License-Identifier: BSD-3-Clause
#include "transport/pacer.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "support/seed.h"

using namespace gradwire;
using namespace gradwire::transport;

namespace {

constexpr TimeNs kSecondNs = 1'000'000'000;

/// Sends packets of `bytes` as early as the pacer lets them until `end`. @return bytes sent.
std::uint64_t drive(Pacer& pacer, TimeNs start, TimeNs end, std::uint32_t bytes) {
  std::uint64_t sent = 0;
  TimeNs now = start;
  while (true) {
    now = pacer.time_for(now, bytes);
    if (now >= end) return sent;
    REQUIRE(pacer.may_send(now, bytes));
    pacer.on_sent(now, bytes);
    sent += bytes;
  }
}

}  // namespace

TEST_CASE("the rate is held exactly, also odd ones") {
  // 7 Mbit/s over 1,000 s; 9.999999967 Gbit/s; 1 bit/s more than a power of two.
  for (const std::uint64_t rate_bps :
       {7'000'001ull, 999'999'937ull, 9'999'999'967ull, (1ull << 33) + 1}) {
    constexpr std::uint32_t kBytes = 8'256;
    constexpr std::uint32_t kBurst = 20'000;
    Pacer pacer(rate_bps, kBurst);
    const TimeNs duration_ns = rate_bps < 1'000'000'000 ? 100 * kSecondNs : kSecondNs;
    const std::uint64_t sent = drive(pacer, 0, duration_ns, kBytes);
    const auto exact = static_cast<std::uint64_t>(static_cast<long double>(rate_bps) / 8 *
                                                  (static_cast<long double>(duration_ns) / 1e9L));
    INFO("rate " << rate_bps << " sent " << sent << " exact " << exact);
    // The bucket's start, and less than a packet left over.
    CHECK(sent <= exact + kBurst);
    CHECK(sent + kBytes > exact + kBurst);
  }
}

TEST_CASE("no stretch of time carries more than the rate and one burst") {
  constexpr std::uint64_t kRate = 1'000'000'007;
  constexpr std::uint32_t kBurst = 30'000;
  Pacer pacer(kRate, kBurst);
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::vector<std::pair<TimeNs, std::uint64_t>> sent;  // time, bytes before it
  std::uint64_t total = 0;
  TimeNs now = 0;
  for (int i = 0; i < 3'000; ++i) {
    now += static_cast<TimeNs>(random() % 10 == 0 ? random() % 1'000'000 : random() % 60'000);
    const auto bytes = static_cast<std::uint32_t>(1 + random() % 9'000);
    if (!pacer.may_send(now, bytes)) {
      const TimeNs at = pacer.time_for(now, bytes);
      REQUIRE(at > now);
      REQUIRE_FALSE(pacer.may_send(at - 1, bytes));
      REQUIRE(pacer.may_send(at, bytes));
      continue;
    }
    REQUIRE(pacer.time_for(now, bytes) == now);
    pacer.on_sent(now, bytes);
    sent.emplace_back(now, total);
    total += bytes;
    for (std::size_t k = sent.size() > 200 ? sent.size() - 200 : 0; k < sent.size(); ++k) {
      const long double allowed =
          kBurst + static_cast<long double>(now - sent[k].first) * kRate / 8e9L;
      REQUIRE(static_cast<long double>(total - sent[k].second) <= allowed + 1e-6L);
    }
  }
  CHECK(total > 1'000'000);
}

TEST_CASE("an idle hour saves one burst and no more") {
  Pacer pacer(80'000'000, 10'000);  // 10 bytes a microsecond
  pacer.on_sent(0, 10'000);
  CHECK_FALSE(pacer.may_send(0, 1));
  CHECK(pacer.time_for(0, 1) == 100);
  CHECK(pacer.time_for(0, 10) == 1'000);
  const TimeNs hour = 3600 * kSecondNs;
  CHECK(pacer.may_send(hour, 10'000));
  pacer.on_sent(hour, 10'000);
  CHECK_FALSE(pacer.may_send(hour, 1));
}

TEST_CASE("a packet larger than the burst goes when the bucket is full, and is paid for") {
  Pacer pacer(80'000'000, 1'000);
  CHECK(pacer.may_send(0, 5'000));
  pacer.on_sent(0, 5'000);
  CHECK_FALSE(pacer.may_send(399'999, 1));
  CHECK(pacer.time_for(0, 1'000) == 500'000);
  CHECK(pacer.time_for(0, 5'000) == 500'000);
}

TEST_CASE("what goes past the pacer is paid for by what follows") {
  Pacer pacer(80'000'000, 10'000);
  for (int i = 0; i < 3; ++i) pacer.on_sent(0, 10'000);
  CHECK(pacer.time_for(0, 10) == 2'001'000);
}

TEST_CASE("an unpaced flow is never held, and starts full when it is paced") {
  Pacer pacer(0, 10'000);
  for (int i = 0; i < 100; ++i) {
    CHECK(pacer.may_send(5, 9'000));
    CHECK(pacer.time_for(5, 9'000) == 5);
    pacer.on_sent(5, 9'000);
  }
  pacer.set_rate(5, 80'000'000);
  CHECK(pacer.may_send(5, 10'000));
  pacer.on_sent(5, 10'000);
  CHECK_FALSE(pacer.may_send(5, 1));
  pacer.set_rate(6, 0);
  CHECK(pacer.may_send(6, 10'000));
}

TEST_CASE("a change of rate keeps what was saved and counts time at the rate of its time") {
  Pacer pacer(80'000'000, 10'000);
  pacer.on_sent(0, 10'000);
  pacer.set_rate(500'000, 800'000'000);  // 5,000 bytes were saved
  CHECK(pacer.may_send(500'000, 5'000));
  CHECK_FALSE(pacer.may_send(500'000, 5'001));
  CHECK(pacer.time_for(500'000, 10'000) == 550'000);
}

TEST_CASE("a debt of a high rate is cut to a burst at a low one") {
  Pacer pacer(8'000'000'000, 1'000);
  pacer.on_sent(0, 1'000'000);
  pacer.set_rate(0, 8'000);  // 1 byte a millisecond
  CHECK(pacer.time_for(0, 1'000) == 2 * kSecondNs);
}

TEST_CASE("the default burst follows the rate") {
  CHECK(Pacer(8'000, 0).burst_bytes() == 18'432);
  CHECK(Pacer(80'000'000'000, 0).burst_bytes() == 10'000'000);
  CHECK(Pacer(std::numeric_limits<std::uint64_t>::max(), 0).burst_bytes() == 0xffffffff);
  Pacer pacer(8'000, 0);
  pacer.set_rate(0, 80'000'000'000);
  CHECK(pacer.burst_bytes() == 10'000'000);
}

TEST_CASE("extremes of rate, size and time neither overflow nor divide by zero") {
  constexpr auto kMaxRate = std::numeric_limits<std::uint64_t>::max();
  constexpr auto kMaxBytes = std::numeric_limits<std::uint32_t>::max();
  for (const std::uint64_t rate : {std::uint64_t{1}, kMaxRate}) {
    Pacer pacer(rate, kMaxBytes);
    for (const TimeNs now : {TimeNs{0}, TimeNs{5}, kNever - 1, kNever, TimeNs{3}}) {
      pacer.on_sent(now, kMaxBytes);
      const TimeNs at = pacer.time_for(now, kMaxBytes);
      CHECK(at >= now);
      if (at != kNever) CHECK(pacer.may_send(at, kMaxBytes));
      pacer.set_rate(now, rate);
    }
  }
}

TEST_CASE("a clock that goes back gives no tokens twice") {
  Pacer pacer(80'000'000, 10'000);
  pacer.on_sent(1'000'000, 10'000);
  CHECK_FALSE(pacer.may_send(0, 1));
  CHECK(pacer.time_for(0, 10) == 1'001'000);
  pacer.on_sent(0, 10);
  CHECK(pacer.time_for(0, 10) == 1'002'000);
}

TEST_CASE("available bytes are what may go now, and none while there is a debt") {
  Pacer pacer(8'000'000'000, 20'000);  // a byte each nanosecond
  CHECK(pacer.available_bytes(0) == 20'000);
  pacer.on_sent(0, 20'500);
  CHECK(pacer.available_bytes(0) == 0);
  CHECK(pacer.available_bytes(500) == 0);
  CHECK(pacer.available_bytes(1'700) == 1'200);
  CHECK(pacer.available_bytes(kSecondNs) == 20'000);
  CHECK(Pacer(0, 0).available_bytes(0) == std::numeric_limits<std::uint64_t>::max());
}
