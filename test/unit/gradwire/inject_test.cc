// SPDX-License-Identifier: BSD-3-Clause
#include "inject.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace gradwire;
using namespace gradwire::cli;
using Catch::Matchers::Contains;

namespace {

InjectOptions parsed(std::vector<std::string> arguments) {
  CLI::App app;
  InjectOptions options;
  add_inject_options(app, options);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return options;
}

}  // namespace

TEST_CASE("options become a request") {
  const auto request = inject_request(parsed({"--port", "net_memif0", "--drop", "0.01", "--reorder",
                                              "0.2", "--reorder-frames", "4", "--seed", "9"}));
  REQUIRE(request);
  CHECK(ipc::text_of(request->device) == "net_memif0");
  CHECK(request->faults ==
        FaultSettings{.seed = 9, .drop = 0.01, .reorder = 0.2, .reorder_frames = 4});
}

TEST_CASE("--clear leaves nothing that goes wrong") {
  const auto request = inject_request(parsed({"--clear"}));
  REQUIRE(request);
  CHECK_FALSE(request->faults.active());
  CHECK(ipc::text_of(request->device).empty());
}

TEST_CASE("what makes no sense is refused here") {
  CHECK_THAT(inject_request(parsed({})).error().message, Contains("nothing to inject"));
  CHECK_THAT(inject_request(parsed({"--clear", "--drop", "0.1"})).error().message,
             Contains("exclude each other"));
  CHECK_THAT(inject_request(parsed({"--drop", "7"})).error().message, Contains("drop = 7"));
  CHECK_THAT(
      inject_request(parsed({"--drop", "0.1", "--port", std::string(64, 'x')})).error().message,
      Contains("at most 63"));
}
