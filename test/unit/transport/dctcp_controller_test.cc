// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <string>

#include "transport/congestion.h"

using namespace gradwire;
using namespace gradwire::transport;

namespace {

constexpr std::uint32_t kPacket = 1'000;

struct Flow {
  explicit Flow(std::uint64_t max_packets = 1'000)
      : controller(make_controller({.kind = CongestionKind::kDctcp,
                                    .max_window_bytes = max_packets * kPacket,
                                    .packet_bytes = kPacket})) {}

  /// Sends a window of packets and has them acknowledged one by one, the last `marked` with CE.
  void round(std::uint64_t marked = 0) {
    const std::uint64_t packets = window();
    for (std::uint64_t i = 0; i < packets; ++i) controller->on_packet_sent(0, kPacket);
    for (std::uint64_t i = 0; i < packets; ++i) {
      controller->on_ack(0, kPacket, i + marked >= packets ? 1 : 0, 0);
    }
  }
  [[nodiscard]] std::uint64_t window() const { return controller->window_bytes() / kPacket; }

  std::unique_ptr<CongestionController> controller;
};

}  // namespace

TEST_CASE("dctcp starts with ten packets and doubles until the first mark") {
  Flow flow;
  CHECK(std::string(flow.controller->name()) == "dctcp");
  CHECK(flow.window() == 10);
  flow.round();
  CHECK(flow.window() >= 14);
  flow.round();
  flow.round();
  CHECK(flow.window() >= 40);
}

TEST_CASE("dctcp halves at the first mark, and by the share of marks once it knows it") {
  Flow flow;
  for (int i = 0; i < 5; ++i) flow.round();
  const std::uint64_t before = flow.window();
  flow.round(before);
  flow.round(1);
  CHECK(flow.window() < before * 2 / 3);
  // Without a mark alpha falls by a sixteenth a round.
  for (int i = 0; i < 100; ++i) flow.round();
  const std::uint64_t high = flow.window();
  flow.round(1);
  flow.round();
  CHECK(flow.window() > high * 9 / 10);
}

TEST_CASE("dctcp adds a packet a round after its first mark") {
  Flow flow;
  for (int i = 0; i < 3; ++i) flow.round();
  flow.round(flow.window());
  flow.round();
  const std::uint64_t before = flow.window();
  for (int i = 0; i < 10; ++i) flow.round();
  CHECK(flow.window() >= before + 5);
  CHECK(flow.window() <= before + 10);
}

TEST_CASE("dctcp halves on loss, once a round, and keeps two packets") {
  Flow flow;
  for (int i = 0; i < 3; ++i) flow.round();
  const std::uint64_t before = flow.window();
  for (int i = 0; i < 4; ++i) flow.controller->on_packet_sent(0, kPacket);
  flow.controller->on_loss(0, kPacket);
  flow.controller->on_loss(0, kPacket);
  CHECK(flow.window() == before / 2);
  for (int i = 0; i < 100; ++i) {
    flow.round(flow.window());
    flow.controller->on_packet_sent(0, kPacket);
    flow.controller->on_loss(0, kPacket);
  }
  CHECK(flow.window() == 2);
}

TEST_CASE("a window that is not used does not grow, and none exceeds its bound") {
  Flow flow(30);
  for (int i = 0; i < 100; ++i) {
    flow.controller->on_packet_sent(0, kPacket);
    flow.controller->on_ack(0, kPacket, 0, 0);
  }
  CHECK(flow.window() == 10);
  for (int i = 0; i < 100; ++i) flow.round();
  CHECK(flow.window() == 30);
}
