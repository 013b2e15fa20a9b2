// SPDX-License-Identifier: BSD-3-Clause
#include "host/logging.h"

#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>

namespace gradwire::host {
namespace {

TEST_CASE("the level decides what is logged") {
  REQUIRE(set_up_logging("warn").has_value());
  CHECK(spdlog::should_log(spdlog::level::warn));
  CHECK_FALSE(spdlog::should_log(spdlog::level::info));
  REQUIRE(set_up_logging("debug").has_value());
  CHECK(spdlog::should_log(spdlog::level::debug));
  CHECK_FALSE(spdlog::should_log(spdlog::level::trace));
}

TEST_CASE("an unknown level is refused by name, and changes nothing") {
  REQUIRE(set_up_logging("error").has_value());
  const auto verdict = set_up_logging("loud");
  REQUIRE_FALSE(verdict.has_value());
  CHECK_THAT(verdict.error().message, Catch::Matchers::Contains("loud"));
  CHECK_FALSE(spdlog::should_log(spdlog::level::warn));
}

}  // namespace
}  // namespace gradwire::host
