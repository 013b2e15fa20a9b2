// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a daemon is configured with, as plain data. Defaults that a library needs too stand in
/// base/defaults.h, the others here. The bounds, units and words of each key stand in keys.cc;
/// load.h fills this from TOML and from flags. Control thread; strings and vectors allocate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/defaults.h"

namespace gradwire::config {

/// The value of a number that was given as "auto", or left out if "auto" is the default.
inline constexpr std::uint64_t kAuto = 0;

struct DaemonSection {
  std::string name = "gradwired";
  std::string control_socket = defaults::kControlSocket;
  std::uint64_t socket_mode = defaults::kSocketMode;
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
  std::string gateway{};      ///< canonical text; empty: there is none
  std::string rail{};         ///< empty: the port's network names it
  std::uint64_t vlan = 0;     ///< 0: untagged
  std::uint64_t mtu = kAuto;  ///< kAuto: as the device has it
  double rate_gbps = 0;       ///< 0: not paced
  std::uint64_t rx_descriptors = defaults::kRxDescriptors;
  std::uint64_t tx_descriptors = defaults::kTxDescriptors;
  std::string xdp_program = "gradwire";
  friend bool operator==(const PortSection&, const PortSection&) = default;
};

struct RouteSection {
  std::string to;  ///< canonical text of an address in the network that is reached
  std::uint64_t prefix_bits = 0;
  std::string via;  ///< canonical text of a router on a port's network
  friend bool operator==(const RouteSection&, const RouteSection&) = default;
};

struct NeighborSection {
  std::string ip;   ///< canonical text
  std::string mac;  ///< canonical text
  friend bool operator==(const NeighborSection&, const NeighborSection&) = default;
};

struct LanesSection {
  std::uint64_t count = kAuto;  ///< kAuto: one for each lcore but the main one
  std::uint64_t base_udp_port = defaults::kBaseUdpPort;
  std::string polling{defaults::kPolling};
  std::int64_t nice = -20;  ///< of adaptive lanes' threads
  friend bool operator==(const LanesSection&, const LanesSection&) = default;
};

struct TransportSection {
  std::uint64_t payload_bytes = kAuto;  ///< kAuto: the most that every port's MTU carries
  double rate_gbps = 0;                 ///< 0: not paced
  std::string congestion{defaults::kCongestion};
  std::uint64_t swift_target_us = defaults::kSwiftTargetUs;
  std::uint64_t window_packets = kAuto;   ///< kAuto: window_packets_for() the payload
  std::uint64_t transit_packets = kAuto;  ///< kAuto: as window_packets
  std::uint64_t eager_packets = defaults::kEagerPackets;
  std::uint64_t exchange_kib = defaults::kExchangeKib;
  std::uint64_t direct_kib = defaults::kDirectKib;
  std::uint64_t two_step_kib = defaults::kTwoStepKib;
  bool two_step_owner = false;
  std::uint64_t gathered_kib = defaults::kGatheredKib;
  std::uint64_t gathered_ranks = defaults::kGatheredRanks;
  std::uint64_t source_ports = defaults::kSourcePorts;
  std::string integrity{defaults::kIntegrity};
  std::uint64_t dscp = 0;
  bool ecn = false;
  friend bool operator==(const TransportSection&, const TransportSection&) = default;
};

struct TimeoutsSection {
  std::uint64_t silence_ms = kAuto;  ///< load() puts its default in kAuto's place
  std::uint64_t formation_ms = defaults::kFormationMs;
  std::uint64_t open_ms = defaults::kOpenMs;
  std::uint64_t hello_ms = defaults::kHelloMs;
  std::uint64_t ping_ms = defaults::kPingMs;
  std::uint64_t leave_ms = defaults::kLeaveMs;
  std::uint64_t leave_grace_ms = defaults::kLeaveGraceMs;
  std::uint64_t drain_ms = defaults::kDrainMs;
  std::uint64_t close_ms = defaults::kCloseMs;
  friend bool operator==(const TimeoutsSection&, const TimeoutsSection&) = default;
};

struct LimitsSection {
  std::uint64_t clients = defaults::kClients;
  std::uint64_t user_clients = kAuto;  ///< load() puts three quarters of `clients` in its place
  std::uint64_t groups = defaults::kGroups;
  std::uint64_t user_groups = kAuto;  ///< as user_clients
  std::uint64_t client_groups = defaults::kClientGroups;
  std::uint64_t client_regions = defaults::kClientRegions;
  std::uint64_t client_memory_mib = defaults::kClientMemoryMib;
  std::uint64_t user_memory_mib =
      kAuto;  ///< three quarters of the hugepages that the host has then
  std::uint64_t active_ops = defaults::kActiveOps;
  std::uint64_t lane_chunks = defaults::kLaneChunks;
  friend bool operator==(const LimitsSection&, const LimitsSection&) = default;
};

struct GpuSection {
  std::string device;  ///< gpudev name; empty: the CPU reduces
  std::string staging = "copy";
  std::string kernel = "launch";
  std::uint64_t persistent_sms = defaults::kPersistentSms;
  std::string client_memory = "host";
  friend bool operator==(const GpuSection&, const GpuSection&) = default;
};

/// What ports do wrong on purpose, for tests of the network's faults. See FaultSettings.
struct FaultsSection {
  std::string port;  ///< device of a [[port]]; empty: every port
  std::uint64_t seed = defaults::kFaultSeed;
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  std::uint64_t reorder_frames = defaults::kReorderFrames;
  double corrupt = 0;
  double delay = 0;
  std::uint64_t delay_us = defaults::kDelayUs;
  friend bool operator==(const FaultsSection&, const FaultsSection&) = default;
};

struct DaemonConfig {
  DaemonSection daemon;
  std::vector<PortSection> ports;
  std::vector<RouteSection> routes;
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
