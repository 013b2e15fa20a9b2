// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <string>

#include "transport/congestion.h"

using namespace gradwire::transport;

TEST_CASE("a static window stays what it was made with") {
  const auto controller = make_static_controller(123'456);
  controller->on_packet_sent(1, 9'000);
  controller->on_ack(2, 9'000, 5, 1'000);
  controller->on_loss(3, 1'000'000);
  CHECK(controller->window_bytes() == 123'456);
  CHECK(std::string(controller->name()) == "static");
}
