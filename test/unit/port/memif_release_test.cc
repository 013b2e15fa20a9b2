// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_release.h"

#include <rte_dev.h>
#include <rte_version.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "port/port.h"

namespace gradwire::port {
namespace {

constexpr DpdkRelease kBuiltWith = {RTE_VER_YEAR, RTE_VER_MONTH, RTE_VER_MINOR};
DpdkRelease pretended = kBuiltWith;

bool is_sound(unsigned year, unsigned month, unsigned minor) {
  return memif_is_sound({year, month, minor}, "net_memif0").has_value();
}

}  // namespace
}  // namespace gradwire::port

// This program's come before those of DPDK's library.
extern "C" {
unsigned int rte_version_year() { return gradwire::port::pretended.year; }
unsigned int rte_version_month() { return gradwire::port::pretended.month; }
unsigned int rte_version_minor() { return gradwire::port::pretended.minor; }
}

namespace gradwire::port {

TEST_CASE("memif is sound before the releases that corrupt frames, between them, and after") {
  CHECK(is_sound(22, 11, 0));
  CHECK(is_sound(22, 11, 11));
  CHECK_FALSE(is_sound(23, 3, 0));
  CHECK_FALSE(is_sound(23, 11, 0));
  CHECK_FALSE(is_sound(23, 11, 6));
  CHECK(is_sound(23, 11, 7));
  CHECK_FALSE(is_sound(24, 3, 0));
  CHECK_FALSE(is_sound(24, 7, 1));
  CHECK_FALSE(is_sound(24, 11, 4));
  CHECK(is_sound(24, 11, 5));
  CHECK(is_sound(24, 11, 8));
  CHECK_FALSE(is_sound(25, 3, 0));
  CHECK_FALSE(is_sound(25, 11, 0));
  CHECK(is_sound(25, 11, 1));
  CHECK(is_sound(26, 3, 0));
}

TEST_CASE("a memif port is refused with a release that corrupts frames, and told which has not") {
  const auto refused = memif_is_sound({24, 11, 2}, "net_memif0");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::kUnsupported);
  for (const char* part : {"net_memif0", "DPDK 24.11.2 ", "DPDK 24.11.5 "}) {
    CAPTURE(refused.error().message);
    CHECK(refused.error().message.find(part) != std::string::npos);
  }

  PortConfig config;
  config.device = "net_memif23";
  config.ip = *wire::parse_ip("10.0.0.1");
  const std::string arguments =
      "role=server,socket-abstract=yes,socket=gradwire-release-" + std::to_string(getpid());
  REQUIRE(rte_eal_hotplug_add("vdev", config.device.c_str(), arguments.c_str()) == 0);
  CHECK(Port::open(config));
  pretended = {23, 7, 0};
  const auto port = Port::open(config);
  pretended = kBuiltWith;
  REQUIRE_FALSE(port);
  CHECK(port.error().message.find("DPDK 23.07.0 ") != std::string::npos);
  rte_eal_hotplug_remove("vdev", config.device.c_str());
}

}  // namespace gradwire::port
