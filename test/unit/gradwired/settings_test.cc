// SPDX-License-Identifier: BSD-3-Clause
#include "settings.h"

#include <catch2/catch.hpp>

namespace gradwire::gradwired {
namespace {

TEST_CASE("lanes are as many as there are worker lcores unless fewer are wanted") {
  config::DaemonConfig config;
  CHECK(*lane_count(config, 1) == 1);
  CHECK(*lane_count(config, 5) == 5);
  CHECK(*lane_count(config, 100) == kMaxLanes);
  config.lanes.count = 2;
  CHECK(*lane_count(config, 5) == 2);
  const auto too_many = lane_count(config, 1);
  REQUIRE_FALSE(too_many.has_value());
  CHECK_THAT(too_many.error().message,
             Catch::Matchers::Contains("lanes.count = 2") && Catch::Matchers::Contains("--lcores"));
}

TEST_CASE("a sealed packet carries what is left beside its tag, on every port") {
  config::DaemonConfig config;
  config.ports = {{.device = "a", .ip = "10.0.0.1", .prefix_bits = 24, .mtu = 9000}};
  const auto payload = [&](std::uint32_t most) {
    return key_options(config, nullptr, most, false).sealed_payload_bytes;
  };
  CHECK(payload(8896) == 8832);
  CHECK(payload(1408) == 1408);
  config.ports.push_back({.device = "b", .ip = "10.0.1.1", .prefix_bits = 24, .mtu = 1500});
  CHECK(payload(1408) == 1344);
  config.ports[1].ip = "fd00::1";
  CHECK(payload(1344) == 1344);
}

TEST_CASE("what is configured of keys reaches the control plane") {
  config::DaemonConfig config;
  config.security = {"encrypt", "authenticate", "/a", "/b"};
  const control::KeyOptions options = key_options(config, nullptr, 1344, true);
  CHECK(options.mode == security::Mode::kEncrypt);
  CHECK(options.minimum == security::Mode::kAuthenticate);
  CHECK(options.files.first == "/a");
  CHECK(options.files.second == "/b");
  CHECK_THAT(options.why_no_seals, Catch::Matchers::Contains("gpu.staging"));
  CHECK(key_options(config, nullptr, 1344, false).why_no_seals.empty());
  CHECK(why_no_gpudirect(config) ==
        "security.mode and security.minimum have packets sealed, which the CPU does");
  CHECK(*read_keys(config::SecuritySection{}) == nullptr);
  const auto none = read_keys({"off", "off", "/nonexistent/key", ""});
  REQUIRE_FALSE(none.has_value());
  CHECK_THAT(none.error().message,
             Catch::Matchers::Contains("key file /nonexistent/key: open: No such file"));
}

TEST_CASE("a port's section becomes the port's configuration") {
  const config::PortSection section{.device = "net_memif0",
                                    .ip = "10.0.0.1",
                                    .prefix_bits = 16,
                                    .vlan = 0,
                                    .mtu = 9000,
                                    .rx_descriptors = 128,
                                    .tx_descriptors = 64};
  port::PortConfig port = port_config(section, {});
  CHECK(port.device == "net_memif0");
  CHECK(wire::to_string(port.ip) == "10.0.0.1");
  CHECK(port.prefix_bits == 16);
  CHECK_FALSE(port.vlan_id.has_value());
  CHECK(port.mtu == 9000);
  CHECK(port.rx_descriptors == 128);
  CHECK(port.tx_descriptors == 64);
  config::PortSection tagged = section;
  tagged.vlan = 7;
  CHECK(port_config(tagged, {}).vlan_id == 7);
}

TEST_CASE("a port has the routes whose router is on its network, and its gateway for all else") {
  config::DaemonConfig config;
  config.ports.push_back({.device = "a", .ip = "10.0.0.1", .prefix_bits = 24});
  config.ports.push_back(
      {.device = "b", .ip = "10.0.1.1", .prefix_bits = 24, .gateway = "10.0.1.254", .rail = "r"});
  config.routes.push_back({.to = "10.9.0.0", .prefix_bits = 16, .via = "10.0.0.254"});
  config.routes.push_back({.to = "10.9.1.0", .prefix_bits = 24, .via = "10.0.0.253"});
  const port::PortConfig a = port_config(config.ports[0], config.routes);
  const port::PortConfig b = port_config(config.ports[1], config.routes);
  const auto hop = [](const port::PortConfig& port, const char* to) -> std::string {
    const auto found =
        port::next_hop(wire::parse_ip(to).value(), port.ip, port.prefix_bits, port.routes);
    return found ? wire::to_string(*found) : "none";
  };
  CHECK(a.rail.empty());
  CHECK(hop(a, "10.0.0.77") == "10.0.0.77");
  CHECK(hop(a, "10.9.7.1") == "10.0.0.254");
  CHECK(hop(a, "10.9.1.1") == "10.0.0.253");
  CHECK(hop(a, "10.8.0.1") == "none");
  CHECK(b.rail == "r");
  CHECK(hop(b, "10.0.1.9") == "10.0.1.9");
  CHECK(hop(b, "10.9.1.1") == "10.0.1.254");
  CHECK(hop(b, "192.0.2.1") == "10.0.1.254");
}

TEST_CASE("an af_xdp port takes the lanes' UDP ports at its address") {
  config::DaemonConfig config;
  config.ports.push_back({.device = "net_af_xdp0", .ip = "10.0.0.1", .prefix_bits = 24, .vlan = 7});
  config.ports.push_back({.device = "net_af_xdp1", .ip = "10.0.1.1", .xdp_program = "driver"});
  config.lanes.base_udp_port = 4000;
  std::vector<port::XdpPort> ports = xdp_ports(config);
  REQUIRE(ports.size() == 2);
  CHECK(ports[0].device == "net_af_xdp0");
  CHECK(wire::to_string(ports[0].traffic.ip) == "10.0.0.1");
  CHECK(ports[0].traffic.first_udp_port == 4000);
  CHECK(ports[0].traffic.udp_ports == 1);  // the driver serves one lane
  CHECK(ports[0].traffic.vlan_id == 7);
  CHECK(ports[0].steer);
  CHECK_FALSE(ports[1].steer);
  config.lanes.count = 2;
  CHECK(xdp_ports(config)[0].traffic.udp_ports == 2);
}

TEST_CASE("faults are those of the port that is named, or of all") {
  config::PortSection a;
  a.device = "a";
  config::PortSection b;
  b.device = "b";
  config::FaultsSection faults;
  CHECK_FALSE(fault_settings(faults, a).active());
  faults.drop = 0.25;
  faults.seed = 9;
  faults.reorder_frames = 3;
  faults.delay_us = 70;
  CHECK(fault_settings(faults, a) == fault_settings(faults, b));
  CHECK(fault_settings(faults, a) ==
        FaultSettings{.seed = 9, .drop = 0.25, .reorder_frames = 3, .delay_us = 70});
  faults.port = "b";
  CHECK_FALSE(fault_settings(faults, a).active());
  CHECK(fault_settings(faults, b).active());
}

TEST_CASE("milliseconds, MiB and Gbit/s become what the libraries count in") {
  config::DaemonConfig config;
  config.timeouts.silence_ms = 200;
  config.timeouts.drain_ms = 3;
  config.transport.rate_gbps = 2.5;
  config.transport.eager_packets = 7;
  config.limits.client_memory_mib = 3;
  const collective::ShardConfig shard = shard_config(config, 8192);
  CHECK(shard.payload_bytes == 8192);
  CHECK(shard.timeouts.silence_ns == 200'000'000);
  CHECK(shard.timeouts.ping_interval_ns == 20'000'000);
  CHECK(shard.sender.max_pto_ns == 20'000'000);
  CHECK(shard.sender.rate_bps == 2'500'000'000);
  CHECK(shard.eager_packets == 7);
  CHECK(features(config) == (512u << 16 | collective::kTokenFeature | 7));
  const control::Limits limits(config.limits, config.timeouts);
  CHECK(limits.bytes_per_client == 3u << 20);
  CHECK(limits.stop_drain_ns == 3'000'000);
}

TEST_CASE("with a GPU chunks go in batches, and the shard has room for all that credit lets in") {
  config::DaemonConfig config;
  CHECK(shard_config(config, 8192).batch_entries == 1);
  // Half a megabyte in flight, whatever the payload.
  CHECK(shard_config(config, 8192).window_packets == 64);
  CHECK(shard_config(config, 4608).window_packets == 113);
  CHECK(shard_config(config, 4608).transit_packets == 113);
  CHECK(shard_config(config, 1408).window_packets == 128);
  config.gpu.device = "gpu_emu0";
  config.transport.window_packets = 100;
  const collective::ShardConfig shard = shard_config(config, 8192);
  CHECK(shard.batch_entries == 32);
  CHECK(shard.pending_entries == 2 * 100 + 100 + 32);
  CHECK(collective::packet_mbufs_needed(shard) >= shard.pending_entries + 2 * 100);

  CHECK(reduce::GpuOptions(config.gpu).staging == reduce::Staging::kCopy);
  CHECK(reduce::GpuOptions(config.gpu).kernel == reduce::KernelMode::kLaunch);
  config.gpu.staging = "mapped";
  config.gpu.kernel = "persistent";
  config.gpu.persistent_sms = 9;
  CHECK(reduce::GpuOptions(config.gpu).device == "gpu_emu0");
  CHECK(reduce::GpuOptions(config.gpu).staging == reduce::Staging::kMapped);
  CHECK(reduce::GpuOptions(config.gpu).kernel == reduce::KernelMode::kPersistent);
  CHECK(reduce::GpuOptions(config.gpu).persistent_sms == 9);
  CHECK_FALSE(reduce::GpuOptions(config.gpu).client_memory);
  config.gpu.client_memory = "gpu";
  CHECK(reduce::GpuOptions(config.gpu).client_memory);
}

TEST_CASE("the configured controller is the shard's") {
  config::DaemonConfig config;
  CHECK(shard_config(config, 8192).congestion == transport::CongestionKind::kStatic);
  config.transport.congestion = "dctcp";
  CHECK(shard_config(config, 8192).congestion == transport::CongestionKind::kDctcp);
  config.transport.congestion = "swift";
  config.transport.swift_target_us = 40;
  CHECK(shard_config(config, 8192).congestion == transport::CongestionKind::kSwift);
  CHECK(shard_config(config, 8192).swift_target_ns == 40'000);
}

TEST_CASE("both polling policies are known to the lanes") {
  config::LanesSection lanes;
  lanes.polling = "busy";
  CHECK(polling_config(lanes).mode == lane::PollingMode::kBusy);
  lanes.polling = "adaptive";
  CHECK(polling_config(lanes).mode == lane::PollingMode::kAdaptive);
}

}  // namespace
}  // namespace gradwire::gradwired
