// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The sections of a daemon's configuration, as plain data: each key once, with its default, in its
/// own unit. lib/config fills them (config/keys.cc has each key's bounds, unit and words), and the
/// libraries make their own structs of them; what has no configuration (embedded ranks,
/// gradwire-perf, the simulator, tests) gets the defaults from here too. Any thread; strings
/// allocate.
#pragma once

#include <cstdint>
#include <string>

#include "base/defaults.h"
#include "base/fault_settings.h"

namespace gradwire {

/// The value of a number that was given as "auto", or left out if "auto" is the default.
inline constexpr std::uint64_t kAuto = 0;

struct DaemonSection {
  std::string name = "gradwired";
  std::string control_socket = defaults::kControlSocket;
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
  std::string gateway{};      ///< canonical text; empty: there is none
  std::string rail{};         ///< empty: the port's network names it
  std::uint64_t vlan = 0;     ///< 0: untagged
  std::uint64_t mtu = kAuto;  ///< kAuto: as the device has it
  double rate_gbps = 0;       ///< 0: not paced
  // Small: what is in flight should stay in the L2 cache.
  std::uint64_t rx_descriptors = 256;
  std::uint64_t tx_descriptors = 256;
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
  std::string polling = "adaptive";
  std::int64_t nice = -20;  ///< of adaptive lanes' threads
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
  std::uint64_t direct_kib = 64;
  std::uint64_t two_step_kib = 16;
  bool two_step_owner = false;
  std::uint64_t gathered_kib = 256;
  std::uint64_t gathered_ranks = 64;
  std::string tiles = "auto";
  std::uint64_t packet_ns = 250;
  std::uint64_t byte_ps = 100;
  std::uint64_t hop_ns = 5'000;
  std::uint64_t tile_scratch_kib = 8192;
  std::uint64_t source_ports = 1;
  std::string integrity = "payload";  ///< a CRC of each payload; "link": none
  std::uint64_t dscp = 0;
  bool ecn = false;
  friend bool operator==(const TransportSection&, const TransportSection&) = default;
};

struct TimeoutsSection {
  std::uint64_t silence_ms = kAuto;  ///< load() puts silence() in kAuto's place
  std::uint64_t formation_ms = 30'000;
  std::uint64_t open_ms = 5'000;
  std::uint64_t hello_ms = 20;
  std::uint64_t ping_ms = 50;
  std::uint64_t leave_ms = 2'000;
  std::uint64_t leave_grace_ms = 60'000;
  std::uint64_t drain_ms = 5'000;
  std::uint64_t close_ms = 5'000;
  /// @param own_cores  polling is busy and require_isolated is true.
  [[nodiscard]] std::uint64_t silence(bool own_cores) const noexcept {
    if (silence_ms != kAuto) return silence_ms;
    return own_cores ? defaults::kSilenceOwnCoresMs : defaults::kSilenceMs;
  }
  friend bool operator==(const TimeoutsSection&, const TimeoutsSection&) = default;
};

struct LimitsSection {
  std::uint64_t clients = 128;
  std::uint64_t user_clients = kAuto;  ///< load() puts clients_of_user() in its place
  std::uint64_t groups = 48;
  std::uint64_t user_groups = kAuto;  ///< likewise groups_of_user()
  std::uint64_t client_groups = 48;
  std::uint64_t transfer_groups = 256;
  std::uint64_t user_transfer_groups = kAuto;  ///< likewise transfer_groups_of_user()
  std::uint64_t client_regions = 64;
  std::uint64_t client_memory_mib = 65'536;
  std::uint64_t user_memory_mib =
      kAuto;  ///< three quarters of the hugepages that the host has then
  std::uint64_t key_memory_mib = 1'024;
  std::uint64_t active_ops = 64;
  std::uint64_t lane_chunks = std::uint64_t{1} << 20;
  [[nodiscard]] std::uint64_t clients_of_user() const noexcept {
    return user_clients != kAuto ? user_clients : defaults::user_share(clients);
  }
  [[nodiscard]] std::uint64_t groups_of_user() const noexcept {
    return user_groups != kAuto ? user_groups : defaults::user_share(groups);
  }
  [[nodiscard]] std::uint64_t transfer_groups_of_user() const noexcept {
    if (user_transfer_groups != kAuto) return user_transfer_groups;
    return transfer_groups != 0 ? defaults::user_share(transfer_groups) : 0;
  }
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

struct SecuritySection {
  std::string mode = "off";
  std::string minimum = "off";
  std::string key_file;         ///< empty: the daemon has no key
  std::string second_key_file;  ///< valid too, while keys are rotated; empty: there is none
  friend bool operator==(const SecuritySection&, const SecuritySection&) = default;
};

/// What ports do wrong on purpose, for tests of the network's faults.
struct FaultsSection : FaultSettings {
  std::string port;  ///< device of a [[port]]; empty: every port
  friend bool operator==(const FaultsSection&, const FaultsSection&) = default;
};

}  // namespace gradwire
