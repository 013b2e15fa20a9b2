// SPDX-License-Identifier: BSD-3-Clause
#include "config/check.h"

#include <catch2/catch.hpp>

#include "config/keys.h"
#include "config/load.h"

namespace gradwire::config {
namespace {

using Catch::Matchers::Contains;

std::string conflict_in(const std::string& text) {
  const auto config = load(text, "gw.toml");
  INFO("loaded although it must not:\n" << text);
  REQUIRE_FALSE(config.has_value());
  return config.error().message;
}

constexpr const char* kTwoPorts =
    "[[port]]\ndevice = \"a\"\nip = \"10.0.0.1/24\"\nmtu = 1500\n"
    "[[port]]\ndevice = \"b\"\nip = \"10.0.1.1/24\"\n";

TEST_CASE("no address and no device twice") {
  CHECK_THAT(conflict_in("[[port]]\ndevice = \"a\"\nip = \"10.0.0.1/24\"\n"
                         "[[port]]\ndevice = \"b\"\nip = \"10.0.0.1/16\"\n"),
             Contains("gw.toml:6") && Contains("port.1.ip") && Contains("port.0.ip"));
  CHECK_THAT(conflict_in("[[port]]\ndevice = \"a\"\nip = \"10.0.0.1/24\"\n"
                         "[[port]]\ndevice = \"a\"\nip = \"10.0.1.1/24\"\n"),
             Contains("gw.toml:5") && Contains("port.1.device"));
  const std::string ports = kTwoPorts;
  CHECK_THAT(conflict_in(ports + "[[neighbor]]\nip = \"10.0.1.1\"\nmac = \"02:00:00:00:00:01\"\n"),
             Contains("gw.toml:9") && Contains("neighbor.0.ip") && Contains("port.1.ip"));
  const std::string neighbor = "[[neighbor]]\nip = \"10.0.0.9\"\nmac = \"02:00:00:00:00:01\"\n";
  CHECK(load(ports + neighbor, "gw.toml").has_value());
  CHECK_THAT(conflict_in(ports + neighbor + neighbor),
             Contains("gw.toml:12") && Contains("neighbor.1.ip"));
}

TEST_CASE("a payload fits the MTU and is a multiple of 64") {
  const std::string ports = kTwoPorts;
  // 1500 - 20 (IPv4) - 8 (UDP) - 64 (header) = 1408, which is 22 x 64.
  CHECK(max_payload_bytes(1500, "10.0.0.1") == 1408);
  CHECK(max_payload_bytes(1499, "10.0.0.1") == 1344);
  CHECK(max_payload_bytes(1500, "fe80::1") == 1344);
  CHECK(max_payload_bytes(92, "10.0.0.1") == 0);
  CHECK(load(ports + "[transport]\npayload_bytes = 1408\n", "f").has_value());
  CHECK_THAT(conflict_in(ports + "[transport]\npayload_bytes = 1472\n"),
             Contains("gw.toml:9") && Contains("transport.payload_bytes = 1472") &&
                 Contains("port.0.mtu = 1500 carries at most 1408"));
  CHECK_THAT(conflict_in(ports + "[transport]\npayload_bytes = 1000\n"),
             Contains("gw.toml:9") && Contains("multiple of 64, such as 960 or 1024"));
}

TEST_CASE("pings are more frequent than silence is long") {
  const std::string ports = kTwoPorts;
  CHECK_THAT(
      conflict_in(ports + "[timeouts]\nping_ms = 700\n"),
      Contains("gw.toml:9") && Contains("timeouts.ping_ms = 700") && Contains("silence_ms = 1500"));
  CHECK(load(ports + "[timeouts]\nping_ms = 500\n", "f").has_value());
}

TEST_CASE("a GPU serves so many groups") {
  const std::string ports = kTwoPorts;
  const std::string gpu = "[gpu]\ndevice = \"gpu_emu0\"\n";
  CHECK(load(ports + gpu, "f").has_value());
  CHECK(load(ports + gpu + "staging = \"mapped\"\nkernel = \"persistent\"\n", "f").has_value());
  CHECK_THAT(conflict_in(ports + gpu + "[limits]\ngroups = 17\n"),
             Contains("limits.groups = 17") && Contains("gpu.device"));
  // Without a GPU neither matters.
  CHECK(load(ports + "[gpu]\nstaging = \"gpudirect\"\n[limits]\ngroups = 17\n", "f"));
}

TEST_CASE("with payloads in GPU memory nothing is asked of the CPU that needs them") {
  const std::string gpu =
      std::string(kTwoPorts) + "[gpu]\ndevice = \"gpu_emu0\"\nstaging = \"gpudirect\"\n";
  CHECK(load(gpu, "f").has_value());
  CHECK_THAT(conflict_in(gpu + "kernel = \"persistent\"\n"),
             Contains("gw.toml:11") && Contains("gpu.kernel") && Contains("launch"));
  CHECK_THAT(conflict_in(gpu + "[daemon]\ncapture = true\n"),
             Contains("daemon.capture") && Contains("copy or mapped"));
  CHECK_THAT(conflict_in(gpu + "[faults]\ncorrupt = 0.1\n"), Contains("faults.corrupt"));
  CHECK_THAT(conflict_in(gpu + "[faults]\nduplicate = 0.1\n"), Contains("faults.duplicate"));
  CHECK(load(gpu + "[faults]\ndrop = 0.1\n", "f").has_value());
}

TEST_CASE("faults are injected on a port that there is") {
  const std::string section = std::string(kTwoPorts) + "[faults]\ndrop = 0.01\n";
  CHECK(load(section, "f").has_value());
  CHECK(load(section + "port = \"b\"\n", "f").has_value());
  CHECK_THAT(conflict_in(section + "port = \"c\"\n"),
             Contains("gw.toml:10") && Contains("faults.port") && Contains("a, b"));
  CHECK_THAT(conflict_in(section + "corrupt = 1.5\n"),
             Contains("faults.corrupt = 1.5") && Contains("a number from 0 to 1"));
}

TEST_CASE("dctcp without ECN is refused, since it would see nothing") {
  const std::string section = std::string(kTwoPorts) + "[transport]\ncongestion = \"dctcp\"\n";
  CHECK_THAT(conflict_in(section),
             Contains("gw.toml:9") && Contains("transport.congestion") && Contains("ecn = true"));
  CHECK(load(section + "ecn = true\n", "f").has_value());
  CHECK(load(std::string(kTwoPorts) + "[transport]\ncongestion = \"swift\"\n", "f").has_value());
}

TEST_CASE("the last lane's UDP port exists whatever the bounds allow") {
  const Key* const base = find_key("lanes", "base_udp_port");
  const Key* const count = find_key("lanes", "count");
  REQUIRE(base != nullptr);
  REQUIRE(count != nullptr);
  CHECK(base->max + count->max <= 65536);
}

TEST_CASE("conflicts can be looked for without a file") {
  DaemonConfig config;
  config.ports = {{.device = "a", .ip = "10.0.0.1", .prefix_bits = 24, .mtu = 1500}};
  config.timeouts.silence_ms = 2000;
  CHECK(find_conflicts(config).empty());
  config.timeouts.ping_ms = 1000;
  const auto found = find_conflicts(config);
  REQUIRE(found.size() == 1);
  CHECK(found[0].key == "timeouts.ping_ms");
}

}  // namespace
}  // namespace gradwire::config
