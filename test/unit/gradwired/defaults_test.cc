// SPDX-License-Identifier: BSD-3-Clause
// A key's default and what a library has without any configuration are the same, whole structs at a
// time: a program that fills a library's struct by itself gets what a daemon gets.
#include "base/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>

#include "config/keys.h"
#include "config/load.h"
#include "daemon.h"
#include "settings.h"
#include "sim/measure/failure_trial.h"

namespace gradwire::gradwired {
namespace {

/// What a daemon has whose user wrote nothing but what is required.
config::DaemonConfig untouched(const std::string& more = "") {
  const auto config =
      config::load("[[port]]\ndevice = \"net_null0\"\nip = \"10.0.0.1/24\"\n" + more, "f");
  if (!config) FAIL(config.error().message);
  return *config;
}

TEST_CASE("a shard is the same by configuration and without one") {
  collective::ShardConfig alone;
  // What only an open port can tell.
  const std::uint32_t payload = 8192;
  alone.payload_bytes = payload;
  alone.window_packets = alone.transit_packets = 0;
  collective::settle_windows(alone, payload);
  // The daemon asks ten times within the silence limit, whatever that is.
  alone.sender.max_pto_ns = alone.timeouts.silence_ns / 10;
  CHECK(shard_config(untouched(), payload) == alone);
  // Where nobody settles them they fit every payload.
  CHECK(collective::ShardConfig{}.window_packets == window_packets_for(0));
  CHECK(collective::ShardConfig{}.transit_packets == window_packets_for(0));
}

TEST_CASE("ports, lanes and faults are the same by configuration and without one") {
  const config::DaemonConfig config = untouched();
  port::PortConfig port;
  port.device = "net_null0";
  port.ip = wire::parse_ip("10.0.0.1").value();
  CHECK(port_config(config.ports[0], {}) == port);
  CHECK(polling_config(config.lanes) == lane::PollingConfig{});
  CHECK(fault_settings(config.faults, config.ports[0]) == FaultSettings{});
  const lane::DatapathConfig datapath;
  CHECK(datapath.base_udp_port == config.lanes.base_udp_port);
  CHECK(datapath.max_groups == config.limits.groups);
}

TEST_CASE("the bounds on clients are the same by configuration and without one") {
  const config::DaemonConfig config = untouched("[daemon]\ncontrol_socket = \"/tmp/gw.sock\"\n");
  CHECK(control::Limits(config.limits, config.timeouts) == control::Limits{});
  const auto server = control_server_options(config);
  REQUIRE(server.has_value());
  const ipc::ControlServerOptions alone;
  CHECK(server->mode == alone.mode);
  CHECK(server->max_connections == alone.max_connections);
  CHECK(server->max_of_user == alone.max_of_user);
  CHECK(server->silence == alone.silence);
  CHECK(server->max_queued_messages == alone.max_queued_messages);
}

TEST_CASE("a GPU is the same by configuration and without one") {
  CHECK(reduce::GpuOptions(untouched().gpu) == reduce::GpuOptions{});
}

/// All that a configuration becomes, as far as the libraries' structs and settings.h make it.
auto all_settings(const config::DaemonConfig& config) {
  const control::PlanSettings plans(config.transport);
  const auto server = control_server_options(config);
  if (!server) FAIL(server.error().message);
  const std::vector<port::XdpPort> xdp = xdp_ports(config);
  return std::tuple(
      shard_config(config, 8192), port_config(config.ports[0], {}), polling_config(config.lanes),
      control::Limits(config.limits, config.timeouts), reduce::GpuOptions(config.gpu),
      fault_settings(config.faults, config.ports[0]), lane_count(config, 12).value_or(0),
      std::tuple(plans.source_ports, plans.dscp, plans.ecn),
      std::tuple(server->mode, server->max_connections, server->max_of_user, server->silence),
      std::tuple(xdp[0].steer, xdp[0].traffic.first_udp_port));
}

/// Another value than the key has. @return false if the key is no number, choice or switch.
bool change(const config::Key& key, config::DaemonConfig& config) {
  const config::Field field = key.field(config, 0);
  if (bool* const* const value = std::get_if<bool*>(&field)) return **value = !**value, true;
  if (double* const* const value = std::get_if<double*>(&field)) return **value += 0.5, true;
  if (key.kind == config::Kind::kChoice) {
    std::string& value = *std::get<std::string*>(field);
    const std::string choices = key.choices;
    const std::string first = choices.substr(0, choices.find('|'));
    value = value == first ? choices.substr(choices.rfind('|') + 1) : first;
    return true;
  }
  if (std::int64_t* const* const value = std::get_if<std::int64_t*>(&field)) return ++**value, true;
  if (std::uint32_t* const* const value = std::get_if<std::uint32_t*>(&field)) {
    return ++**value, true;
  }
  std::uint64_t* const* const value = std::get_if<std::uint64_t*>(&field);
  if (value == nullptr) return false;
  **value = **value == static_cast<std::uint64_t>(key.max) ? static_cast<std::uint64_t>(key.min)
                                                           : static_cast<std::uint64_t>(key.max);
  if (key.kind == config::Kind::kMode) **value = 0600;
  return true;
}

TEST_CASE("every key reaches the library that it is for") {
  // Read where the daemon is put together.
  const std::vector<std::string> by_daemon = {"daemon.require_isolated",
                                              "daemon.log_level",
                                              "daemon.capture",
                                              "transport.payload_bytes",
                                              "transport.direct_kib",
                                              "transport.two_step_kib",
                                              "transport.two_step_owner",
                                              "transport.gathered_kib",
                                              "transport.tiles",
                                              "transport.packet_ns",
                                              "transport.byte_ps",
                                              "transport.hop_ns",
                                              "lanes.nice",
                                              "security.mode",
                                              "security.minimum"};
  const config::DaemonConfig config = untouched("[daemon]\ncontrol_socket = \"/tmp/gw.sock\"\n");
  const auto before = all_settings(config);
  std::size_t changed = 0;
  for (const config::Key& key : config::keys()) {
    const std::string name = fmt::format("{}.{}", key.section, key.name);
    config::DaemonConfig other = config;
    if (config::is_array_section(key.section) && std::string_view(key.section) != "port") continue;
    if (std::count(by_daemon.begin(), by_daemon.end(), name) != 0) continue;
    if (!change(key, other)) continue;
    INFO(name);
    CHECK_FALSE(all_settings(other) == before);
    ++changed;
  }
  CHECK(changed > 40);
}

TEST_CASE("what --help says of an automatic value is what it becomes") {
  const auto help = [](const char* section, const char* name) {
    return std::string(config::find_key(section, name)->help);
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(help("timeouts", "silence_ms"),
             Contains(fmt::format("auto: {} if polling is busy", defaults::kSilenceOwnCoresMs)) &&
                 Contains(fmt::format("else {}", defaults::kSilenceMs)));
  CHECK(untouched().timeouts.silence_ms == defaults::kSilenceMs);
  CHECK(untouched("[lanes]\npolling = \"busy\"\n[daemon]\nrequire_isolated = true\n")
            .timeouts.silence_ms == defaults::kSilenceOwnCoresMs);
  CHECK_THAT(help("transport", "window_packets"),
             Contains(fmt::format("from {} to {}", window_packets_for(0), window_packets_for(64))));
  CHECK(untouched().limits.user_clients == 96);
  CHECK(untouched().limits.user_groups == 36);
}

TEST_CASE("the simulator measures with the limits that a daemon has") {
  CHECK(sim::FailureTrialOptions{}.silence_ns == shard_config(untouched(), 64).timeouts.silence_ns);
  CHECK(sim::FailureTrialOptions{}.ping_interval_ns ==
        shard_config(untouched(), 64).timeouts.ping_interval_ns);
}

}  // namespace
}  // namespace gradwire::gradwired
