// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All that a daemon has of keys (doc/security.md): its cluster's, its users', and secrets of
/// pairs. A daemon without a key has an object that says so, and does nothing else. The control
/// thread owns it; it allocates, and reads files at load() alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/keys/cluster_keys.h"
#include "control/keys/join_keys.h"
#include "control/keys/key_making.h"
#include "control/keys/key_memory.h"
#include "control/keys/pair_cache.h"
#include "control/keys/user_keys.h"
#include "ipc/join_message.h"

namespace gradwire::control {

struct PlanRequest;

/// What the daemon is configured with.
struct KeyOptions {
  security::Mode mode = security::Mode::kOff;     ///< security.mode
  security::Mode minimum = security::Mode::kOff;  ///< security.minimum
  KeyFiles files;
  ClusterKeysPtr cluster;                  ///< as the files were at the start; null: none
  std::uint32_t sealed_payload_bytes = 0;  ///< of a sealed packet; a multiple of 64
  std::string why_no_seals;                ///< as JoinKeys'
  UserKeys::Bounds users{};                ///< only tests change it
  std::size_t pairs = PairCache::kKept;    ///< likewise
};

/// "off", "authenticate" or "encrypt", as keys of the configuration have it.
[[nodiscard]] security::Mode parse_mode(const std::string& text) noexcept;

class DaemonKeys {
 public:
  /// @param options  outlive it.
  /// @param is_here  whether a user has clients now. Such users keep their X25519 keys.
  /// @param worker   frees groups' keys; null: whoever lets go of them does.
  DaemonKeys(const KeyOptions& options, std::uint64_t incarnation,
             std::function<bool(uid_t)> is_here = {}, const KeyMemory::Bounds& memory = {},
             ipc::Worker* worker = nullptr);
  DaemonKeys(const DaemonKeys&) = delete;
  DaemonKeys& operator=(const DaemonKeys&) = delete;
  ~DaemonKeys() { memory_->stop(); }

  [[nodiscard]] bool has_keys() const noexcept { return cluster_ != nullptr; }
  [[nodiscard]] security::Mode mode() const noexcept { return options_.mode; }
  [[nodiscard]] security::Mode minimum() const noexcept { return options_.minimum; }
  /// The ids of the keys that it has, as text; the first one first.
  [[nodiscard]] std::vector<std::string> ids() const;
  /// For the log: "mode off, minimum off, keys 5f00112233445566".
  [[nodiscard]] std::string text() const;

  /// Reads the files again. On an error all stays as it was.
  [[nodiscard]] Result<void> load();

  /// Writes what an entry says of keys; its checksum comes after. Without a key it writes nothing.
  [[nodiscard]] Result<void> write(ipc::RankInfo& info, uid_t uid, security::Mode wanted,
                                   const security::KeyId& job);
  /// Why this daemon cannot do what the job wants, whatever the table; empty: it may.
  [[nodiscard]] std::string why_not(security::Mode wanted) const;
  [[nodiscard]] JoinKeys for_join(uid_t uid, const ipc::JoinWants& wants) const;

  /// A group was begun, and its epoch remembered.
  void begun() { users_.begun(); }
  /// Memory for the keys of a group; null if its mode is off. Before anybody waits for it.
  [[nodiscard]] Result<KeyRoomPtr> room_for(const PlanRequest& wanted, uid_t uid);
  /// What makes the keys of a group that was begun.
  /// @param room  of room_for(); null: their memory is not counted.
  /// @return an error if its X25519 key is retired, or its file's key was taken away.
  [[nodiscard]] Result<std::shared_ptr<KeyMaking>> making_for(const PlanRequest& wanted, uid_t uid,
                                                              std::span<const ipc::RankInfo> table,
                                                              const JobKeyPtr& job,
                                                              KeyRoomPtr room = nullptr);
  /// Takes the pairs that were made, unless their keys are gone since.
  void keep_pairs_of(const KeyMaking& making, uid_t uid);

  [[nodiscard]] const UserKeys& users() const noexcept { return users_; }
  [[nodiscard]] const PairCache& pairs() const noexcept { return pairs_; }
  [[nodiscard]] const KeyMemory& memory() const noexcept { return *memory_; }

 private:
  const KeyOptions& options_;
  const std::uint64_t incarnation_;
  ClusterKeysPtr cluster_;
  const std::shared_ptr<KeyMemory> memory_;
  PairCache pairs_;
  UserKeys users_;
};

}  // namespace gradwire::control
