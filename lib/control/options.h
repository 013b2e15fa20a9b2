// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the daemon tells its control plane at start: who it is, and the bounds it enforces. Plain
/// data; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sections.h"
#include "base/sip_hash.h"
#include "base/types.h"
#include "control/keys/daemon_keys.h"
#include "ipc/control_messages.h"
#include "ipc/shared_memory.h"
#include "status/daemon_status.h"

namespace gradwire::control {

/// Bounds on what clients can take. Every one is enforced with an error that names it.
struct Limits {
  Limits() : Limits(LimitsSection{}, TimeoutsSection{}) {}
  explicit Limits(const LimitsSection& keys, const TimeoutsSection& timeouts)
      : clients(static_cast<std::uint32_t>(keys.clients)),
        clients_per_user(static_cast<std::uint32_t>(keys.clients_of_user())),
        bytes_per_client(keys.client_memory_mib << 20),
        bytes_per_user(keys.user_memory_mib << 20),
        regions_per_client(static_cast<std::uint32_t>(keys.client_regions)),
        groups_per_client(static_cast<std::uint32_t>(keys.client_groups)),
        groups(static_cast<std::uint32_t>(keys.groups)),
        groups_per_user(static_cast<std::uint32_t>(keys.groups_of_user())),
        transfer_groups(static_cast<std::uint32_t>(keys.transfer_groups)),
        transfer_groups_per_user(static_cast<std::uint32_t>(keys.transfer_groups_of_user())),
        key_bytes(keys.key_memory_mib << 20),
        key_bytes_per_user(defaults::user_share(key_bytes)),
        formation_default_ns(defaults::ms(timeouts.formation_ms)),
        leave_grace_ns(defaults::ms(timeouts.leave_grace_ms)),
        stop_drain_ns(defaults::ms(timeouts.drain_ms)),
        stop_close_ns(defaults::ms(timeouts.close_ms)) {}

  std::uint32_t clients = 0;
  std::uint32_t clients_per_user = 0;
  std::uint64_t bytes_per_client = 0;
  /// For all clients of a user together. 0: three quarters of the host's hugepages, and on a GPU no
  /// bound.
  std::uint64_t bytes_per_user = 0;
  std::uint32_t regions_per_client = 0;
  std::uint32_t groups_per_client = 0;
  std::uint32_t groups = 0;
  std::uint32_t groups_per_user = 0;
  /// Groups for transfers alone, which count in none of the three above.
  std::uint32_t transfer_groups = 0;
  std::uint32_t transfer_groups_per_user = 0;
  std::uint64_t key_bytes = 0;  ///< of keys of groups
  std::uint64_t key_bytes_per_user = 0;
  /// Used if a join names no timeout.
  TimeNs formation_default_ns = 0;
  TimeNs formation_max_ns = 3'600'000'000'000;
  /// How long after the first member has left the group is aborted if others have not left, since
  /// an op that they post would wait for a contribution that never comes.
  TimeNs leave_grace_ns = 0;
  /// After begin_stop(), how long members may take to leave by themselves.
  TimeNs stop_drain_ns = 0;
  /// After the drain, how long the lanes may take to close.
  TimeNs stop_close_ns = 0;
  friend bool operator==(const Limits&, const Limits&) = default;
};

/// As RankInfo's.
/// @param text  of transport.tiles.
[[nodiscard]] constexpr std::uint16_t tiles_wanted(std::string_view text) noexcept {
  if (text == "always") return ipc::RankInfo::kTilesAlways;
  return text == "never" ? ipc::RankInfo::kTilesNever : ipc::RankInfo::kTilesAuto;
}

struct DaemonInfo {
  std::string version;
  std::uint64_t incarnation = 0;  ///< random at start, not 0
  SipHashKey secret;              ///< random at start; secret_for() makes users' secrets of it
  std::uint32_t max_payload_bytes = 0;
  std::uint32_t features = 0;         ///< must be equal on all ranks of a group
  std::uint16_t base_udp_port = 0;    ///< lane i listens on base_udp_port + i
  std::uint16_t direct_kib = 0;       ///< as RankInfo's
  std::uint16_t two_step_kib = 0;     ///< likewise
  std::uint16_t gathered_kib = 0;     ///< likewise
  std::uint16_t gathered_ranks = 0;   ///< likewise
  bool two_step_owner = false;        ///< likewise
  bool tiles = false;                 ///< likewise
  std::uint16_t tiles_wanted = 0;     ///< likewise
  std::uint16_t packet_ns = 0;        ///< likewise
  std::uint16_t byte_ps = 0;          ///< likewise
  std::uint32_t hop_ns = 0;           ///< likewise
  std::uint16_t fold_sources = 0;     ///< likewise
  std::uint16_t folding = 0;          ///< likewise
  std::uint16_t source_ports = 0;     ///< likewise
  bool transfers = false;             ///< likewise
  int numa_node = -1;                 ///< where client memory goes
  std::vector<std::string> datapath;  ///< facts found at start, for the status: ports, drivers
  std::vector<std::string> warnings;  ///< problems found at start
};

struct ManagerOptions {
  DaemonInfo daemon;
  /// Adds to the status what the manager does not know: rounds, the log.
  std::function<void(status::Daemon&)> facts = {};
  /// Told of steps that poll() takes for a user, who asked for them before.
  std::function<void(uid_t, std::uint64_t steps)> charge = {};
  /// Hugepages of the host, which clients' memory and queues are made of; nothing if unknown.
  std::function<std::optional<ipc::HugepagePool>()> hugepages = {};
  Limits limits;
  KeyOptions keys{};
  ipc::PageKind pages = ipc::PageKind::kHuge;  ///< only tests change it
  /// Ids of clients and of memory start again from 1 after it; larger than all limits. Only tests
  /// change it.
  std::uint32_t last_id = UINT32_MAX;
};

}  // namespace gradwire::control
