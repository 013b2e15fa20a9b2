// SPDX-License-Identifier: BSD-3-Clause
#include "command_line.h"

#include <catch2/catch.hpp>

#include "config/keys.h"

namespace gradwire::gradwired {
namespace {

using Catch::Matchers::Contains;

Result<CommandLine> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gradwired");
  return parse_command_line(arguments);
}

TEST_CASE("EAL options end at the two dashes") {
  const auto line = parse({"--lcores", "0@0,1@1", "--no-pci", "--", "--config", "a.toml"});
  REQUIRE(line.has_value());
  CHECK(line->program == "gradwired");
  CHECK(line->eal_arguments == std::vector<std::string>{"--lcores", "0@0,1@1", "--no-pci"});
  CHECK(line->config_path == "a.toml");
  CHECK(line->overrides.empty());
}

TEST_CASE("without two dashes all options are gradwire's") {
  CHECK(parse({"--help"})->show_help);
  CHECK(parse({"-h"})->show_help);
  CHECK(parse({"--version"})->show_version);
  const auto line = parse({"--check", "--config=a.toml"});
  REQUIRE(line.has_value());
  CHECK(line->check);
  CHECK(line->config_path == "a.toml");
  CHECK(line->eal_arguments.empty());
}

TEST_CASE("keys come as flags in both forms, in order") {
  const auto line = parse({"--", "--lanes.count", "2", "--config", "a", "--port.1.ip=10.0.0.1/24",
                           "--daemon.name", "a=b"});
  REQUIRE(line.has_value());
  REQUIRE(line->overrides.size() == 3);
  CHECK(line->overrides[0].name == "lanes.count");
  CHECK(line->overrides[0].value == "2");
  CHECK(line->overrides[1].name == "port.1.ip");
  CHECK(line->overrides[1].value == "10.0.0.1/24");
  CHECK(line->overrides[2].value == "a=b");
}

TEST_CASE("a negative number is a value") {
  const auto line = parse({"--", "--transport.dscp", "-1"});
  REQUIRE(line.has_value());
  REQUIRE(line->overrides.size() == 1);
  CHECK(line->overrides[0].value == "-1");
}

TEST_CASE("what is no option is named") {
  CHECK_THAT(parse({"--", "--bogus"}).error().message, Contains("--bogus"));
  CHECK_THAT(parse({"--", "stray"}).error().message, Contains("stray"));
  CHECK_THAT(parse({"--lcores", "0@0"}).error().message,
             Contains("--lcores") && Contains("before \"--\""));
  CHECK_THAT(parse({"--", "--lanes.count"}).error().message, Contains("--lanes.count"));
  CHECK_FALSE(parse({"--", "--config"}).has_value());
}

TEST_CASE("help shows the way of calling, the options and every key") {
  const std::string help = help_text();
  CHECK_THAT(help, Contains("gradwired [EAL options] -- [options]") && Contains("--config") &&
                       Contains("--check"));
  for (const config::Key& key : config::keys()) {
    CHECK_THAT(help, Contains(std::string("--") + key.section + "." + key.name));
  }
}

}  // namespace
}  // namespace gradwire::gradwired
