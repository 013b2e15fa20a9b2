// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a group's table says of keys: the rules of doc/security.md, In the entry and Which mode a
/// group has. Pure functions, but for the keys that they look up; the control thread; they
/// allocate. A MAC takes some 2 microseconds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "control/keys/cluster_keys.h"
#include "control/keys/user_keys.h"
#include "ipc/join_message.h"
#include "security/entry_keys.h"

namespace gradwire::control {

/// What this daemon has, and the join asks for.
struct JoinKeys {
  const ClusterKeys* cluster = nullptr;  ///< nullptr: the daemon has no key
  const UserKeys* users = nullptr;       ///< not nullptr, if it has a key
  uid_t uid = 0;                         ///< who joins
  security::Mode wanted = security::Mode::kOff;
  security::Mode minimum = security::Mode::kOff;
  security::KeyId job{};     ///< zeros: the job has no key
  std::string why_no_seals;  ///< why the daemon can seal no packet; empty: it can
};

/// What all ranks of a table agree on.
struct GroupSecurity {
  security::Mode mode = security::Mode::kOff;
  security::KeyId key{};            ///< the group's, of the cluster; zeros if the mode is off
  security::PublicKey own{};        ///< this rank's, likewise
  std::uint32_t payload_bytes = 0;  ///< of a sealed packet, likewise
  /// By rank; empty if the mode is off.
  std::vector<security::PublicKey> public_keys{};
};

[[nodiscard]] inline security::EntryIn bytes_of_entry(const ipc::RankInfo& info) noexcept {
  return std::as_bytes(std::span(&info, 1)).first<security::kEntryBytes>();
}

/// `wanted` of a request.
/// @param daemons  the daemon's mode.
[[nodiscard]] security::Mode mode_of(ipc::WantedMode wanted, security::Mode daemons) noexcept;

/// Whether the entry is one that this daemon made for this user and for what the join asks for.
/// Also of members that join a group that is there.
[[nodiscard]] Result<void> check_own_keys(std::size_t rank, const ipc::RankInfo& entry,
                                          const JoinKeys& keys);

/// Checks the entries' keys, all of them.
/// @param rank  this daemon's; `table[rank]` is its entry but for what it says of keys.
/// @return an error that names the rank, or both.
[[nodiscard]] Result<GroupSecurity> agree_on_keys(std::span<const ipc::RankInfo> table,
                                                  std::size_t rank, const JoinKeys& keys);

/// For the log of a group that is formed: ", security encrypt by key 5f00..."; empty if off.
[[nodiscard]] std::string formed_text(const GroupSecurity& security);

/// What two entries of one daemon say differently of keys, for people; empty: nothing.
[[nodiscard]] std::string keys_difference(const ipc::RankInfo& a, const ipc::RankInfo& b);

}  // namespace gradwire::control
