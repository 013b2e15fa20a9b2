// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <string>

#include "transport/congestion.h"

using namespace gradwire;
using namespace gradwire::transport;

namespace {

constexpr std::uint32_t kPacket = 1'000;
constexpr TimeNs kTarget = 50'000;

struct Flow {
  explicit Flow(std::uint64_t max_packets = 1'000)
      : controller(make_controller({.kind = CongestionKind::kSwift,
                                    .max_window_bytes = max_packets * kPacket,
                                    .packet_bytes = kPacket,
                                    .swift_target_ns = kTarget})) {}

  /// A window of packets, each acknowledged after `delay_ns`.
  void round(TimeNs delay_ns) {
    const std::uint64_t packets = std::max<std::uint64_t>(window(), 1);
    for (std::uint64_t i = 0; i < packets; ++i) controller->on_packet_sent(now, kPacket);
    now += delay_ns;
    for (std::uint64_t i = 0; i < packets; ++i) controller->on_ack(now, kPacket, 0, delay_ns);
  }
  [[nodiscard]] std::uint64_t window() const { return controller->window_bytes() / kPacket; }

  TimeNs now = 1'000'000;
  std::unique_ptr<CongestionController> controller;
};

}  // namespace

TEST_CASE("swift grows fast at first, then by a packet a round below its target") {
  Flow flow;
  CHECK(std::string(flow.controller->name()) == "swift");
  flow.round(10'000);
  flow.round(10'000);
  CHECK(flow.window() >= 20);
  flow.round(200'000);
  const std::uint64_t before = flow.window();
  for (int i = 0; i < 10; ++i) flow.round(10'000);
  CHECK(flow.window() >= before + 5);
  CHECK(flow.window() <= before + 11);
}

TEST_CASE("swift gives way by how much the delay exceeds the target, once a round trip") {
  Flow flow;
  for (int i = 0; i < 5; ++i) flow.round(10'000);
  const std::uint64_t before = flow.window();
  REQUIRE(before > 100);
  flow.round(55'000);
  CHECK(flow.window() < before);
  CHECK(flow.window() > before * 8 / 10);
  const std::uint64_t next = flow.window();
  flow.round(10'000'000);
  CHECK(flow.window() >= next / 2 - 1);
  CHECK(flow.window() <= next / 2 + 2);
}

TEST_CASE("a small window bears more delay than a large one") {
  Flow small;
  small.round(10'000'000);
  for (int i = 0; i < 20; ++i) small.round(10'000'000);
  CHECK(small.window() == 1);
  small.round(90'000);  // Above the base, below the target of a window of one.
  CHECK(small.window() == 2);
  Flow large;
  for (int i = 0; i < 6; ++i) large.round(10'000);
  const std::uint64_t before = large.window();
  large.round(90'000);
  CHECK(large.window() < before);
}

TEST_CASE("swift halves on loss, once a round trip, and keeps one packet") {
  Flow flow;
  for (int i = 0; i < 3; ++i) flow.round(10'000);
  const std::uint64_t before = flow.window();
  flow.controller->on_loss(flow.now, kPacket);
  flow.controller->on_loss(flow.now, kPacket);
  CHECK(flow.window() == before / 2);
  for (int i = 0; i < 50; ++i) flow.controller->on_loss(flow.now += 1'000'000, kPacket);
  CHECK(flow.window() == 1);
}

TEST_CASE("an acknowledgement that tells no delay changes no window that is too large") {
  Flow flow;
  for (int i = 0; i < 6; ++i) flow.round(10'000);
  flow.round(10'000'000);
  const std::uint64_t before = flow.window();
  flow.controller->on_packet_sent(flow.now += 100'000'000, kPacket);
  flow.controller->on_ack(flow.now, kPacket, 0, 0);
  CHECK(flow.window() == before);
}
