// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a daemon is configured with, as plain data, and its defaults. The bounds, units and words
/// of each key stand in keys.cc; load.h fills this from TOML and from flags. Control thread;
/// strings and vectors allocate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::config {

/// The value of a number that was given as "auto", or left out where "auto" is the default.
inline constexpr std::uint64_t kAuto = 0;

struct DaemonSection {
  std::string name = "gradwired";
  std::string control_socket = "/run/gradwire/gradwired.sock";
  std::uint64_t socket_mode = 0660;
  std::string socket_group;  ///< empty: the daemon's own
  bool require_isolated = false;
  std::string log_level = "info";
  std::string metrics;  ///< loopback address and port; empty: not served
  bool capture = false;
  friend bool operator==(const DaemonSection&, const DaemonSection&) = default;
};

struct PortSection {
  std::string device;  ///< ethdev name or PCI address
  std::string ip;      ///< canonical text, without the prefix
  std::uint64_t prefix_bits = 0;
  std::uint64_t vlan = 0;     ///< 0: untagged
  std::uint64_t mtu = kAuto;  ///< kAuto: as the device has it
  double rate_gbps = 0;       ///< 0: not paced
  std::uint64_t rx_descriptors = 256;
  std::uint64_t tx_descriptors = 256;
  std::string xdp_program = "gradwire";
  friend bool operator==(const PortSection&, const PortSection&) = default;
};

struct NeighborSection {
  std::string ip;   ///< canonical text
  std::string mac;  ///< canonical text
  friend bool operator==(const NeighborSection&, const NeighborSection&) = default;
};

struct LanesSection {
  std::uint64_t count = kAuto;  ///< kAuto: one for each lcore but the main one
  std::uint64_t base_udp_port = 18515;
  std::string polling = "adaptive";
  friend bool operator==(const LanesSection&, const LanesSection&) = default;
};

struct TransportSection {
  std::uint64_t payload_bytes = kAuto;  ///< kAuto: the most that every port's MTU carries
  double rate_gbps = 0;                 ///< 0: not paced
  std::string congestion = "static";
  std::uint64_t swift_target_us = 100;
  std::uint64_t window_packets = kAuto;   ///< kAuto: window_packets_for() the payload
  std::uint64_t transit_packets = kAuto;  ///< kAuto: as window_packets
  std::uint64_t eager_packets = 32;
  std::uint64_t exchange_kib = 512;
  std::uint64_t dscp = 0;
  bool ecn = false;
  friend bool operator==(const TransportSection&, const TransportSection&) = default;
};

struct TimeoutsSection {
  std::uint64_t silence_ms = kAuto;  ///< load() puts its default in kAuto's place
  std::uint64_t formation_ms = 30'000;
  std::uint64_t open_ms = 5'000;
  std::uint64_t hello_ms = 20;
  std::uint64_t ping_ms = 50;
  std::uint64_t leave_ms = 2'000;
  std::uint64_t leave_grace_ms = 60'000;
  std::uint64_t drain_ms = 5'000;
  std::uint64_t close_ms = 5'000;
  friend bool operator==(const TimeoutsSection&, const TimeoutsSection&) = default;
};

struct LimitsSection {
  std::uint64_t clients = 128;
  std::uint64_t user_clients = kAuto;  ///< load() puts three quarters of `clients` in its place
  std::uint64_t groups = 16;
  std::uint64_t user_groups = kAuto;  ///< as user_clients
  std::uint64_t client_groups = 16;
  std::uint64_t client_regions = 64;
  std::uint64_t client_memory_mib = 65'536;
  std::uint64_t active_ops = 64;
  std::uint64_t lane_chunks = std::uint64_t{1} << 20;
  friend bool operator==(const LimitsSection&, const LimitsSection&) = default;
};

struct GpuSection {
  std::string device;  ///< gpudev name; empty: the CPU reduces
  std::string staging = "copy";
  std::string kernel = "launch";
  std::uint64_t persistent_sms = 4;
  std::string client_memory = "host";
  friend bool operator==(const GpuSection&, const GpuSection&) = default;
};

/// What ports do wrong on purpose, for tests of the network's faults. See FaultSettings.
struct FaultsSection {
  std::string port;  ///< device of a [[port]]; empty: every port
  std::uint64_t seed = 1;
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  std::uint64_t reorder_frames = 8;
  double corrupt = 0;
  double delay = 0;
  std::uint64_t delay_us = 1'000;
  friend bool operator==(const FaultsSection&, const FaultsSection&) = default;
};

struct DaemonConfig {
  DaemonSection daemon;
  std::vector<PortSection> ports;
  std::vector<NeighborSection> neighbors;
  LanesSection lanes;
  TransportSection transport;
  TimeoutsSection timeouts;
  LimitsSection limits;
  GpuSection gpu;
  FaultsSection faults;
  friend bool operator==(const DaemonConfig&, const DaemonConfig&) = default;
};

}  // namespace gradwire::config
