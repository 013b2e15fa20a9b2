// SPDX-License-Identifier: BSD-3-Clause
#include "port/eal.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace gradwire::port {
namespace {

using Arguments = std::vector<std::string>;

TEST_CASE("the file prefix is the daemon's name unless one is given") {
  const auto has = [](const Arguments& arguments, const char* wanted) {
    return std::find(arguments.begin(), arguments.end(), wanted) != arguments.end();
  };
  CHECK(make_eal_arguments("gradwired", {"--no-pci"}, "gw0")->at(1) == "--no-pci");
  CHECK(has(*make_eal_arguments("gradwired", {"--no-pci"}, "gw0"), "--file-prefix=gw0"));
  CHECK(has(*make_eal_arguments("gradwired", {}, "node 7/a"), "--file-prefix=node_7_a"));
  for (const Arguments& given :
       {Arguments{"--file-prefix", "x"}, Arguments{"--file-prefix=x"}, Arguments{"--in-memory"}}) {
    CHECK_FALSE(has(*make_eal_arguments("gradwired", given, "gw0"), "--file-prefix=gw0"));
  }
}

TEST_CASE("hugepages are not left behind unless that is asked for") {
  CHECK(make_eal_arguments("gradwired", {}, "gw0")->back() == "--huge-unlink=always");
  for (const Arguments& given : {Arguments{"--huge-unlink=never"}, Arguments{"--in-memory"}}) {
    CHECK(make_eal_arguments("gradwired", given, "gw0")->back() != "--huge-unlink=always");
  }
}

TEST_CASE("hugepages that others may map keep their files") {
  const auto arguments = make_eal_arguments("gradwired", {}, "gw0", true);
  CHECK(std::none_of(arguments->begin(), arguments->end(), [](const std::string& argument) {
    return argument.starts_with("--huge-unlink");
  }));
}

TEST_CASE("a daemon is never a secondary process") {
  CHECK(make_eal_arguments("gradwired", {"--proc-type=primary"}, "gw0").has_value());
  CHECK(make_eal_arguments("gradwired", {"--proc-type", "primary"}, "gw0").has_value());
  for (const Arguments& given : {Arguments{"--proc-type=secondary"},
                                 Arguments{"--proc-type", "auto"}, Arguments{"--proc-type"}}) {
    const auto arguments = make_eal_arguments("gradwired", given, "gw0");
    REQUIRE_FALSE(arguments.has_value());
    CHECK_THAT(arguments.error().message, Catch::Matchers::Contains("--proc-type"));
  }
}

}  // namespace
}  // namespace gradwire::port
