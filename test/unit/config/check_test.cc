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

TEST_CASE("an address is one that a host can have, and a neighbor is on a port's link") {
  const auto port = [](const std::string& ip) {
    return "[[port]]\ndevice = \"a\"\nip = \"" + ip + "\"\n";
  };
  CHECK_THAT(conflict_in(port("10.0.0.255/24")),
             Contains("gw.toml:3") && Contains("port.0.ip") && Contains("broadcast"));
  CHECK_THAT(conflict_in(port("10.0.0.0/24")),
             Contains("gw.toml:3") && Contains("the network's own"));
  CHECK_THAT(conflict_in(port("127.0.0.1/8")), Contains("gw.toml:3") && Contains("loopback"));
  for (const char* good : {"10.0.0.254/24", "10.0.1.0/23", "10.0.0.255/23", "10.0.0.0/31",
                           "10.0.0.1/31", "10.0.0.0/32", "126.255.255.254/8", "10.0.0.1/1"}) {
    INFO(good);
    CHECK(load(port(good), "gw.toml").has_value());
  }
  const auto with_neighbor = [](const std::string& ip) {
    return std::string(kTwoPorts) + "[[neighbor]]\nip = \"" + ip +
           "\"\nmac = \"02:00:00:00:00:01\"\n";
  };
  CHECK(load(with_neighbor("10.0.1.2"), "gw.toml").has_value());
  CHECK_THAT(conflict_in(with_neighbor("10.0.2.2")),
             Contains("gw.toml:9") && Contains("neighbor.0.ip") &&
                 Contains("no [[port]] (10.0.0.1/24, 10.0.1.1/24)"));
  CHECK_THAT(conflict_in(with_neighbor("10.0.1.255")),
             Contains("neighbor.0.ip") && Contains("broadcast"));
  CHECK_THAT(conflict_in(with_neighbor("10.0.0.0")), Contains("the network's own"));
}

TEST_CASE("a router is on a port's link, and leads to networks, each once") {
  const auto with_gateway = [](const std::string& gateway) {
    return std::string(kTwoPorts) + "gateway = \"" + gateway + "\"\n";
  };
  const auto good = load(with_gateway("10.0.1.254"), "gw.toml");
  REQUIRE(good);
  CHECK(good->ports[1].gateway == "10.0.1.254");
  CHECK(good->ports[0].gateway.empty());
  CHECK(load(to_toml(*good), "again").value() == *good);
  CHECK_THAT(conflict_in(with_gateway("10.0.0.254")),
             Contains("gw.toml:8: port.1.gateway = '10.0.0.254'") &&
                 Contains("not in the port's network 10.0.1.1/24"));
  CHECK_THAT(conflict_in(with_gateway("10.0.1.1")), Contains("the port's own address"));
  CHECK_THAT(conflict_in(with_gateway("10.0.1.255")), Contains("broadcast"));

  const auto with_route = [](const std::string& to, const std::string& via) {
    return "[[route]]\nto = \"" + to + "\"\nvia = \"" + via + "\"\n";
  };
  const std::string ports = kTwoPorts;
  const std::string first = with_route("10.9.0.0/16", "10.0.0.254");
  CHECK(load(ports + first + with_route("10.9.1.0/24", "10.0.0.253"), "f").has_value());
  CHECK(load(ports + first + with_route("10.9.0.0/16", "10.0.1.254"), "f").has_value());
  CHECK_THAT(conflict_in(ports + first + with_route("10.9.0.0/16", "10.0.0.253")),
             Contains("route.1.to") && Contains("route.0.to is the same network"));
  CHECK_THAT(conflict_in(ports + with_route("10.9.0.1/16", "10.0.0.254")),
             Contains("gw.toml:9") && Contains("bits behind the prefix are zero"));
  CHECK_THAT(conflict_in(ports + with_route("10.9.0.0/16", "10.7.0.1")),
             Contains("gw.toml:10") && Contains("route.0.via") && Contains("no [[port]]"));
  CHECK_THAT(conflict_in(ports + with_route("10.9.0.0/16", "10.0.1.1")),
             Contains("the port's own address"));
  CHECK_THAT(conflict_in("[[port]]\ndevice = \"a\"\nip = \"10.0.0.1/24\"\nrail = \"x\"\n"
                         "[[port]]\ndevice = \"b\"\nip = \"10.0.1.1/24\"\nrail = \"x\"\n"),
             Contains("gw.toml:8") && Contains("port.1.rail") && Contains("port.0.rail"));
}

TEST_CASE("over IPv6 a router may be link-local, and a host is neither a network nor all routers") {
  const auto port = [](const std::string& ip, const std::string& more = "") {
    return "[[port]]\ndevice = \"a\"\nip = \"" + ip + "\"\n" + more;
  };
  CHECK(load(port("fd00::1/64", "gateway = \"fd00::fe\"\n"), "f").has_value());
  CHECK(load(port("fd00::1/64", "gateway = \"fe80::1\"\n"), "f").has_value());
  CHECK(load(port("fd00::/127"), "f").has_value());
  CHECK(load(port("fd00::ffff:ffff:ffff:ffff/64"), "f").has_value());
  CHECK_THAT(conflict_in(port("fe80::1/64")), Contains("port.0.ip") && Contains("link-local"));
  CHECK_THAT(conflict_in(port("fd00::/64")), Contains("port.0.ip") && Contains("all routers"));
  CHECK_THAT(conflict_in(port("fd00::1/64", "gateway = \"fd01::1\"\n")),
             Contains("port.0.gateway") && Contains("fd00::1/64"));
  CHECK_THAT(conflict_in(port("fd00::1/64", "gateway = \"10.0.0.1\"\n")),
             Contains("port.0.gateway") && Contains("fd00::1/64"));
  CHECK_THAT(conflict_in(port("10.0.0.1/24", "gateway = \"fe80::1\"\n")),
             Contains("port.0.gateway") && Contains("10.0.0.1/24"));
  const auto route = [&](const std::string& to, const std::string& via) {
    return port("fd00::1/64") + "[[route]]\nto = \"" + to + "\"\nvia = \"" + via + "\"\n";
  };
  CHECK(load(route("fd01::/16", "fd00::fe"), "f").has_value());
  CHECK_THAT(conflict_in(route("fd01::1/16", "fd00::fe")), Contains("bits behind the prefix"));
  CHECK_THAT(conflict_in(route("10.1.0.0/16", "fd00::fe")), Contains("another IP version"));
  CHECK_THAT(conflict_in(route("fd01::/16", "fe80::1")), Contains("port.gateway"));
  const std::string neighbor = "[[neighbor]]\nmac = \"02:00:00:00:00:02\"\nip = ";
  CHECK(load(port("fd00::1/64") + neighbor + "\"fd00::2\"\n", "f").has_value());
  CHECK_THAT(conflict_in(port("fd00::1/64") + neighbor + "\"10.0.0.2\"\n"),
             Contains("neighbor.0.ip") && Contains("no [[port]]"));
}

TEST_CASE("metrics are served on loopback, with a port") {
  const auto served_at = [](const std::string& address) {
    return std::string(kTwoPorts) + "[daemon]\nmetrics = \"" + address + "\"\n";
  };
  for (const char* good : {"", "127.0.0.1:9464", "127.1.2.3:1", "[::1]:65535"}) {
    INFO(good);
    CHECK(load(served_at(good), "gw.toml").has_value());
  }
  for (const char* bad : {"0.0.0.0:9464", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",
                          "127.0.0.1:65536", "127.0.0.1:http", "127.evil:9464", "10.0.0.1:9464"}) {
    INFO(bad);
    CHECK_THAT(conflict_in(served_at(bad)),
               Contains("gw.toml:9: daemon.metrics") && Contains("as 127.0.0.1:9464"));
  }
}

TEST_CASE("the daemon's name can be a folder's") {
  for (const char* bad : {"a/b", ".", "..", "/", "a\\u0001b"}) {
    INFO(bad);
    CHECK_THAT(conflict_in(std::string(kTwoPorts) + "[daemon]\nname = \"" + bad + "\"\n"),
               Contains("gw.toml:9") && Contains("daemon.name") && Contains("/run/dpdk"));
  }
  CHECK(load(std::string(kTwoPorts) + "[daemon]\nname = \"a.b-1_\"\n", "f").has_value());
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

TEST_CASE("lanes listen on no port from which daemons send") {
  const auto with = [](const std::string& lanes, const std::string& transport) {
    return std::string(kTwoPorts) + "[lanes]\n" + lanes + "\n[transport]\n" + transport + "\n";
  };
  const std::string ports = "source_ports = 32";
  CHECK_THAT(conflict_in(with("base_udp_port = 49140", ports)), Contains("lanes.base_udp_port") &&
                                                                    Contains("49152 to 49663") &&
                                                                    Contains("below 49136"));
  CHECK_THAT(conflict_in(with("base_udp_port = 49663", ports)), Contains("lanes.base_udp_port"));
  CHECK(load(with("base_udp_port = 49136", ports), "gw.toml").has_value());
  CHECK(load(with("base_udp_port = 49664", ports), "gw.toml").has_value());
  CHECK(load(with("base_udp_port = 49152", ""), "gw.toml").has_value());
}

TEST_CASE("what is asked of a GPU matters if there is one") {
  const std::string ports = kTwoPorts;
  const std::string gpu = "[gpu]\ndevice = \"gpu_emu0\"\n";
  CHECK(load(ports + gpu, "f").has_value());
  CHECK(load(ports + gpu + "staging = \"mapped\"\nkernel = \"persistent\"\n", "f").has_value());
  CHECK(load(ports + "[gpu]\nstaging = \"mapped\"\n", "f"));
  CHECK_THAT(conflict_in(ports + "[gpu]\nstaging = \"gpudirect\"\n"),
             Contains("gw.toml:9") && Contains("gpu.staging") && Contains("gpu.device"));
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

TEST_CASE("without CRCs of payloads nothing is asked that needs them") {
  const std::string link = std::string(kTwoPorts) + "[transport]\nintegrity = \"link\"\n";
  CHECK(load(link, "f").has_value());
  CHECK_THAT(conflict_in(link + "[faults]\ncorrupt = 0.1\n"),
             Contains("faults.corrupt") && Contains("transport.integrity = link"));
  CHECK(load(link + "[faults]\ndrop = 0.1\n", "f").has_value());
  CHECK_THAT(conflict_in(link + "[gpu]\ndevice = \"gpu_emu0\"\nstaging = \"gpudirect\"\n"),
             Contains("gpu.staging") && Contains("transport.integrity = payload"));
  CHECK_THAT(conflict_in(std::string(kTwoPorts) + "[transport]\nintegrity = \"none\"\n"),
             Contains("transport.integrity") && Contains("payload") && Contains("link"));
}

TEST_CASE("what asks for keys names a key, and its mode is not below its minimum") {
  const auto security = [](const std::string& keys) {
    return std::string(kTwoPorts) + "[security]\n" + keys;
  };
  const std::string key = "key_file = \"/etc/gradwire/cluster.key\"\n";
  CHECK(load(security(key), "f").has_value());
  CHECK(load(security(key + "mode = \"encrypt\"\n"), "f").has_value());
  CHECK(load(security(key + "mode = \"encrypt\"\nminimum = \"authenticate\"\n"), "f").has_value());
  CHECK_THAT(conflict_in(security("mode = \"authenticate\"\n")),
             Contains("gw.toml:9: security.mode") && Contains("security.key_file"));
  CHECK_THAT(conflict_in(security("mode = \"encrypt\"\nminimum = \"encrypt\"\n")),
             Contains("security.mode") && Contains("gw.toml:10: security.minimum"));
  CHECK_THAT(conflict_in(security(key + "minimum = \"authenticate\"\n")),
             Contains("security.mode") && Contains("below security.minimum = authenticate"));
  CHECK_THAT(conflict_in(security(key + "mode = \"authenticate\"\nminimum = \"encrypt\"\n")),
             Contains("below security.minimum = encrypt"));
  CHECK_THAT(conflict_in(security("mode = \"tls\"\n")), Contains("off, authenticate"));
  const std::string second = "second_key_file = \"/etc/gradwire/next.key\"\n";
  CHECK(load(security(key + second), "f").has_value());
  CHECK_THAT(conflict_in(security(second)),
             Contains("gw.toml:9: security.second_key_file") && Contains("no first one"));
  CHECK_THAT(conflict_in(security(key + "second_key_file = \"/etc/gradwire/cluster.key\"\n")),
             Contains("security.second_key_file") && Contains("the same file"));
  const std::string gpu = "[gpu]\ndevice = \"gpu_emu0\"\nstaging = \"gpudirect\"\n";
  CHECK(load(security(key) + gpu, "f").has_value());
  CHECK_THAT(conflict_in(security(key + "mode = \"encrypt\"\n") + gpu),
             Contains("security.mode") && Contains("gpu.staging = gpudirect"));
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
  config.ports.resize(1);
  config.ports[0].device = "a";
  config.ports[0].ip = "10.0.0.1";
  config.ports[0].prefix_bits = 24;
  config.ports[0].mtu = 1500;
  config.timeouts.silence_ms = 2000;
  CHECK(find_conflicts(config).empty());
  config.timeouts.ping_ms = 1000;
  const auto found = find_conflicts(config);
  REQUIRE(found.size() == 1);
  CHECK(found[0].key == "timeouts.ping_ms");
}

}  // namespace
}  // namespace gradwire::config
