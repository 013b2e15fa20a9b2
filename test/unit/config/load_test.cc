// SPDX-License-Identifier: BSD-3-Clause
#include "config/load.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gradwire::config {
namespace {

using Catch::Matchers::Contains;

constexpr const char* kPort =
    "[[port]]\n"
    "device = \"net_memif0\"\n"
    "ip = \"10.0.0.1/24\"\n";

/// The message of a text that must not load.
std::string mistake_in(const std::string& text, std::vector<Override> flags = {}) {
  const auto config = load(text, "gw.toml", flags);
  INFO("loaded although it must not:\n" << text);
  REQUIRE_FALSE(config.has_value());
  REQUIRE(config.error().code == ErrorCode::kInvalidArgument);
  return config.error().message;
}

TEST_CASE("a port is enough, the rest has defaults") {
  const auto config = load(kPort, "gw.toml");
  REQUIRE(config.has_value());
  REQUIRE(config->ports.size() == 1);
  CHECK(config->ports[0].device == "net_memif0");
  CHECK(config->ports[0].ip == "10.0.0.1");
  CHECK(config->ports[0].prefix_bits == 24);
  CHECK(config->lanes.count == kAuto);
  CHECK(config->transport == TransportSection{});
}

TEST_CASE("silence is short where lanes have their cores to themselves, unless it is given") {
  const std::string port = kPort;
  CHECK(load(port, "f")->timeouts.silence_ms == 1500);
  const std::string isolated = "[daemon]\nrequire_isolated = true\n";
  CHECK(load(port + "[lanes]\npolling = \"busy\"\n", "f")->timeouts.silence_ms == 1500);
  CHECK(load(port + isolated, "f")->timeouts.silence_ms == 1500);
  CHECK(load(port + isolated + "[lanes]\npolling = \"busy\"\n", "f")->timeouts.silence_ms == 150);
  CHECK(load(port + "[lanes]\npolling = \"busy\"\n[timeouts]\nsilence_ms = 900\n", "f")
            ->timeouts.silence_ms == 900);
  CHECK(load(port + "[timeouts]\nsilence_ms = \"auto\"\n", "f")->timeouts.silence_ms == 1500);
}

TEST_CASE("a user may have three quarters of the clients and groups, unless it is given") {
  const std::string port = kPort;
  CHECK(load(port, "f")->limits.user_clients == 96);
  CHECK(load(port, "f")->limits.user_groups == 36);
  const auto few = load(port + "[limits]\nclients = 1\ngroups = 2\n", "f");
  CHECK(few->limits.user_clients == 1);
  CHECK(few->limits.user_groups == 2);
  const auto given = load(port + "[limits]\nuser_clients = 7\nuser_groups = \"auto\"\n", "f");
  CHECK(given->limits.user_clients == 7);
  CHECK(given->limits.user_memory_mib == kAuto);  // for the host to say
  CHECK(given->limits.user_groups == 36);
}

TEST_CASE("an unknown key names its line and the nearest key") {
  const std::string message = mistake_in(std::string(kPort) + "[transport]\npayload_byte = 64\n");
  CHECK_THAT(message, Contains("gw.toml:5") && Contains("payload_byte") &&
                          Contains("did you mean \"payload_bytes\"?"));
}

TEST_CASE("an unknown section names its line and the nearest section") {
  const std::string message = mistake_in(std::string(kPort) + "\n[transprot]\ndscp = 1\n");
  CHECK_THAT(message, Contains("gw.toml:5") && Contains("did you mean \"transport\"?"));
}

TEST_CASE("a wrong type names line, key, value and what would be right") {
  const std::string port = kPort;
  CHECK_THAT(mistake_in(port + "[daemon]\nrequire_isolated = \"yes\"\n"),
             Contains("gw.toml:5") && Contains("daemon.require_isolated") && Contains("yes") &&
                 Contains("true or false"));
  CHECK_THAT(mistake_in(port + "[lanes]\nbase_udp_port = 1.5\n"),
             Contains("gw.toml:5") && Contains("lanes.base_udp_port") && Contains("1.5") &&
                 Contains("an integer from 1024 to 65520"));
  CHECK_THAT(mistake_in(port + "[daemon]\nname = 7\n"),
             Contains("gw.toml:5") && Contains("daemon.name = 7") && Contains("a string"));
  CHECK_THAT(mistake_in(port + "[daemon]\nname = [\"a\"]\n"),
             Contains("gw.toml:5") && Contains("daemon.name") && Contains("a string"));
  CHECK_THAT(mistake_in(port + "[transport]\neager_packets = \"auto\"\n"),
             Contains("gw.toml:5") && Contains("transport.eager_packets") &&
                 Contains("an integer from 1"));
}

TEST_CASE("a value out of its bounds names line, key, value and bounds") {
  const std::string port = kPort;
  CHECK_THAT(mistake_in(port + "[transport]\ndscp = 64\n"),
             Contains("gw.toml:5") && Contains("transport.dscp = 64") && Contains("from 0 to 63"));
  // A full acknowledgement must fit: doc/protocol.
  CHECK_THAT(mistake_in(port + "mtu = 1279\n"),
             Contains("gw.toml:4") && Contains("port.0.mtu = 1279") && Contains("1280 to 9702"));
  CHECK_THAT(mistake_in(port + "[transport]\ndscp = -1\n"),
             Contains("gw.toml:5") && Contains("transport.dscp = -1"));
  CHECK_THAT(mistake_in(port + "[transport]\nrate_gbps = nan\n"),
             Contains("gw.toml:5") && Contains("transport.rate_gbps"));
  CHECK_THAT(
      mistake_in(port + "[limits]\nactive_ops = 48\n"),
      Contains("gw.toml:5") && Contains("limits.active_ops = 48") && Contains("a power of two"));
  CHECK_THAT(mistake_in(port + "[lanes]\npolling = \"eager\"\n"),
             Contains("gw.toml:5") && Contains("lanes.polling") && Contains("busy, adaptive"));
  CHECK_THAT(mistake_in(port + "[daemon]\nsocket_mode = \"0888\"\n"),
             Contains("gw.toml:5") && Contains("daemon.socket_mode") && Contains("octal"));
  CHECK_THAT(mistake_in(port + "[daemon]\nname = \"\"\n"),
             Contains("gw.toml:5") && Contains("daemon.name") && Contains("1 to 32 characters"));
}

TEST_CASE("addresses are checked") {
  const auto with_ip = [](const std::string& ip) {
    return mistake_in("[[port]]\ndevice = \"d\"\nip = \"" + ip + "\"\n");
  };
  CHECK_THAT(with_ip("10.0.0.256/24"), Contains("gw.toml:3") && Contains("port.0.ip"));
  CHECK_THAT(with_ip("10.0.0.1"), Contains("gw.toml:3") && Contains("no prefix"));
  CHECK_THAT(with_ip("10.0.0.1/33"), Contains("gw.toml:3") && Contains("/32"));
  CHECK_THAT(with_ip("224.0.0.1/24"), Contains("gw.toml:3") && Contains("port.0.ip"));
  for (const char* bad :
       {"fd00::/64x", "fd00::g/64", "ff02::1/64", "::1/64", "::/64", "::ffff:10.0.0.1/64"}) {
    INFO(bad);
    CHECK_THAT(with_ip(bad), Contains("gw.toml:3") && Contains("port.0.ip"));
  }
  CHECK_THAT(with_ip("fd00::1"), Contains("gw.toml:3") && Contains("no prefix"));
  CHECK_THAT(with_ip("fd00::1/129"), Contains("gw.toml:3") && Contains("/128"));
  const auto ipv6 = load("[[port]]\ndevice = \"d\"\nip = \"FD00:0:0::a/64\"\n", "f");
  REQUIRE(ipv6);
  CHECK(ipv6->ports[0].ip == "fd00::a");
  CHECK(ipv6->ports[0].prefix_bits == 64);
  CHECK(load(to_toml(*ipv6), "again").value() == *ipv6);
  const std::string neighbor = std::string(kPort) + "[[neighbor]]\nip = \"10.0.0.2\"\n";
  CHECK_THAT(mistake_in(neighbor + "mac = \"01:00:00:00:00:01\"\n"),
             Contains("gw.toml:6") && Contains("neighbor.0.mac"));
  CHECK_THAT(mistake_in(neighbor + "mac = \"02-00-00-00-00-01\"\n"),
             Contains("gw.toml:6") && Contains("neighbor.0.mac"));
  CHECK(load(neighbor + "mac = \"02:00:00:00:AB:01\"\n", "f")->neighbors[0].mac ==
        "02:00:00:00:ab:01");
}

TEST_CASE("a missing required key names its section's line") {
  CHECK_THAT(mistake_in("\n[[port]]\ndevice = \"d\"\n"),
             Contains("gw.toml:2") && Contains("port.0.ip is missing"));
  CHECK_THAT(mistake_in(std::string(kPort) + "[[neighbor]]\nip = \"10.0.0.2\"\n"),
             Contains("gw.toml:4") && Contains("neighbor.0.mac is missing"));
  CHECK_THAT(mistake_in("[lanes]\ncount = 1\n"), Contains("no [[port]] section"));
}

TEST_CASE("a section of the wrong shape is told how to be written") {
  CHECK_THAT(mistake_in("[port]\ndevice = \"d\"\n"), Contains("gw.toml:1") && Contains("[[port]]"));
  CHECK_THAT(mistake_in("port = 3\n"), Contains("gw.toml:1") && Contains("[[port]]"));
  CHECK_THAT(mistake_in("\nlanes = 3\n"), Contains("gw.toml:2") && Contains("[lanes]"));
  CHECK_THAT(mistake_in("[[lanes]]\ncount = 3\n"), Contains("gw.toml:1") && Contains("[lanes]"));
}

TEST_CASE("what is no TOML names its line") {
  CHECK_THAT(mistake_in("[daemon]\nname = \n"), Contains("gw.toml:2") && Contains("not TOML"));
  CHECK_THAT(mistake_in("[daemon]\nname = \"a\"\nname = \"b\"\n"), Contains("gw.toml:3"));
}

TEST_CASE("all mistakes are told, in the order of the file") {
  const std::string message =
      mistake_in("[transport]\ndscp = 99\n[lanes]\ncuont = 1\n[daemon]\nlog_level = \"loud\"\n");
  const std::size_t dscp = message.find("gw.toml:2");
  const std::size_t count = message.find("gw.toml:4");
  const std::size_t level = message.find("gw.toml:6");
  REQUIRE(level != std::string::npos);
  CHECK(dscp < count);
  CHECK(count < level);
}

TEST_CASE("a flag replaces what the file says") {
  const std::vector<Override> flags = {{"transport.payload_bytes", "1024"},
                                       {"port.ip", "10.0.0.7/16"},
                                       {"port.1.device", "net_memif1"},
                                       {"port.1.ip", "10.1.0.7/16"},
                                       {"transport.rate_gbps", "2.5"},
                                       {"transport.ecn", "true"},
                                       {"lanes.count", "auto"}};
  const auto config = load(std::string(kPort) + "[lanes]\ncount = 3\n", "gw.toml", flags);
  REQUIRE(config.has_value());
  CHECK(config->transport.payload_bytes == 1024);
  CHECK(config->transport.rate_gbps == 2.5);
  CHECK(config->transport.ecn);
  CHECK(config->lanes.count == kAuto);
  REQUIRE(config->ports.size() == 2);
  CHECK(config->ports[0].device == "net_memif0");
  CHECK(config->ports[0].ip == "10.0.0.7");
  CHECK(config->ports[0].prefix_bits == 16);
  CHECK(config->ports[1].device == "net_memif1");
}

TEST_CASE("a wrong flag names itself") {
  CHECK_THAT(mistake_in(kPort, {{"lanes.count", "many"}}),
             Contains("--lanes.count") && Contains("many") && Contains("from 1 to 16"));
  CHECK_THAT(mistake_in(kPort, {{"lanes.cuont", "1"}}),
             Contains("--lanes.cuont") && Contains("did you mean \"count\"?"));
  CHECK_THAT(mistake_in(kPort, {{"lane.count", "1"}}),
             Contains("--lane.count") && Contains("did you mean \"lanes\"?"));
  CHECK_THAT(mistake_in(kPort, {{"port.2.ip", "10.0.0.9/24"}}), Contains("--port.2.ip"));
  CHECK_THAT(mistake_in(kPort, {{"lanes.0.count", "1"}}), Contains("--lanes.0.count"));
  CHECK_THAT(mistake_in(kPort, {{"transport.payload_bytes", "100"}}),
             Contains("--transport.payload_bytes") && Contains("multiple of 64"));
}

TEST_CASE("a text that no file can hold is refused, so that what is shown can be loaded") {
  for (const char* const bytes : {"\xff", "net\xc3", "\xed\xa0\x80", "\xf5\x80\x80\x80"}) {
    CAPTURE(bytes);
    const std::string text = mistake_in("", {{"port.device", bytes}, {"port.ip", "10.0.0.1/24"}});
    CHECK_THAT(text, Contains("--port.device") && Contains("UTF-8"));
  }
  for (const char* const bytes : {"\xc3\xa9\xe2\x80\xa8", "\x01\x1f\x7f\t\"\\", "\xef\xbf\xbe"}) {
    CAPTURE(bytes);
    const std::vector<Override> flags = {{"port.device", bytes}, {"port.ip", "10.0.0.1/24"}};
    const auto config = load("", "gw.toml", flags);
    REQUIRE(config.has_value());
    const auto again = load(to_toml(*config), "again.toml");
    REQUIRE(again.has_value());
    CHECK(*again == *config);
  }
}

TEST_CASE("a nice value may be below 0") {
  CHECK(load(kPort, "f")->lanes.nice == -20);
  CHECK(load(kPort, "f", {{{"lanes.nice", "-3"}}})->lanes.nice == -3);
  CHECK(load(std::string(kPort) + "[lanes]\nnice = 19\n", "f")->lanes.nice == 19);
  CHECK_THAT(mistake_in(std::string(kPort) + "[lanes]\nnice = -21\n"),
             Contains("lanes.nice") && Contains("from -20 to 19"));
  CHECK_THAT(mistake_in(std::string(kPort) + "[lanes]\nnice = \"auto\"\n"),
             Contains("lanes.nice") && Contains("from -20 to 19"));
}

TEST_CASE("the effective configuration loads to the same") {
  const std::string text =
      "[daemon]\nname = \"a \\\"b\\\" \\\\ c\"\nsocket_mode = \"0600\"\nsocket_group = \"gw\"\n"
      "require_isolated = true\nlog_level = \"debug\"\n"
      "[[port]]\ndevice = \"0000:01:00.0\"\nip = \"10.0.0.1/24\"\nvlan = 100\nmtu = 9000\n"
      "[[port]]\ndevice = \"0000:01:00.1\"\nip = \"10.0.1.1/24\"\nrx_descriptors = 1024\n"
      "[[neighbor]]\nip = \"10.0.0.2\"\nmac = \"02:00:00:00:00:02\"\n"
      "[lanes]\ncount = 4\npolling = \"busy\"\nnice = -7\n"
      "[transport]\npayload_bytes = 8192\nrate_gbps = 12.345\necn = true\n"
      "[timeouts]\nsilence_ms = 333\n[limits]\nclient_groups = 2\ngroups = 3\n";
  const auto config = load(text, "gw.toml");
  if (!config) FAIL(config.error().message);
  const std::string printed = to_toml(*config);
  const auto again = load(printed, "printed");
  if (!again) FAIL(again.error().message << "\n" << printed);
  CHECK(*again == *config);
  CHECK(to_toml(*again) == printed);
  CHECK(config->transport.rate_gbps == 12.345);
  CHECK(config->daemon.name == "a \"b\" \\ c");

  const auto defaults = load(kPort, "gw.toml");
  REQUIRE(defaults.has_value());
  CHECK(*load(to_toml(*defaults), "printed") == *defaults);
}

TEST_CASE("a file that is not there or cannot be read is named") {
  const auto config = load_file("/nonexistent/gw.toml");
  REQUIRE_FALSE(config.has_value());
  CHECK_THAT(config.error().message, Contains("/nonexistent/gw.toml"));
  CHECK(config.error().code == ErrorCode::kNotFound);
  const auto directory = load_file("/");
  REQUIRE_FALSE(directory.has_value());
  CHECK(directory.error().code == ErrorCode::kNotFound);
}

TEST_CASE("without a file the flags must say it all") {
  const std::vector<Override> flags = {{"port.device", "net_memif0"}, {"port.ip", "10.0.0.1/24"}};
  CHECK(load_file("", flags).has_value());
  CHECK_FALSE(load_file("").has_value());
}

TEST_CASE("an empty file is a file with nothing in it") {
  char path[] = "/tmp/gradwire-config-XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  const std::vector<Override> flags = {{"port.device", "net_memif0"}, {"port.ip", "10.0.0.1/24"}};
  CHECK(load_file(path, flags).has_value());
  std::filesystem::remove(path);
}

TEST_CASE("every example loads") {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GRADWIRE_EXAMPLES)) {
    if (entry.path().extension() != ".toml") continue;
    ++examples;
    const auto config = load_file(entry.path().string());
    if (!config) FAIL(config.error().message);
  }
  CHECK(examples >= 5);
}

}  // namespace
}  // namespace gradwire::config
