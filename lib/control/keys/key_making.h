// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Makes the keys of a group, piece by piece, on the worker: secrets of pairs of daemons take 40
/// microseconds each, and a group may have 1,023. The control thread prepares it and takes what it
/// has made; in between the worker owns it. It allocates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/keys/cluster_keys.h"
#include "control/keys/group_keys.h"
#include "control/keys/key_memory.h"
#include "control/keys/pair_cache.h"
#include "control/keys/user_keys.h"

namespace gradwire::control {

class KeyMaking {
 public:
  /// One other rank with which packets are exchanged.
  struct Rank {
    std::uint16_t rank = 0;
    std::uint64_t incarnation = 0;
    security::PublicKey public_key{};
    PairPtr pair;  ///< null: to be made
    bool made = false;
  };
  /// Of a piece, which takes some milliseconds: lanes' links to ranks, if not one rank has more.
  static constexpr std::size_t kLinksPerPiece = 32;

  /// @param own      this daemon's key of the user.
  /// @param cluster  has the group's key `file`.
  /// @param job      nullptr: the job has no key.
  /// @param room     of as many links; nullptr: their memory is not counted.
  KeyMaking(const LinkCommon& common, UserKeyPtr own, ClusterKeysPtr cluster,
            const security::KeyId& file, JobKeyPtr job, std::vector<Rank> ranks,
            KeyRoomPtr room = nullptr)
      : own_(std::move(own)),
        cluster_(std::move(cluster)),
        file_(file),
        job_(std::move(job)),
        ranks_(std::move(ranks)),
        keys_(std::make_unique<GroupKeys>(common, room)),
        room_(std::move(room)) {}

  /// One piece. @return whether all is done. After an error, and if nobody waits for it any more,
  /// it frees what was made.
  [[nodiscard]] bool work();
  /// Nobody waits for the keys any more. Any thread, also while work() runs.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

  [[nodiscard]] const security::PublicKey& own_key() const noexcept { return own_->public_key(); }
  [[nodiscard]] const security::KeyId& file() const noexcept { return file_; }

  // After that.
  /// Why there are no keys; names the rank.
  [[nodiscard]] std::optional<Error> error() const;
  /// Once. Whoever does not want them takes them too: the worker frees them, if their memory is
  /// counted.
  [[nodiscard]] std::shared_ptr<GroupKeys> take() {
    return freed_by_worker(std::move(keys_), std::move(room_));
  }
  /// Pairs that were made, into the cache.
  void keep_pairs(PairCache& cache) const;

 private:
  /// @param own  made for the first rank whose pair is not known.
  [[nodiscard]] Result<void> make(Rank& rank, std::optional<security::X25519Exchange>& own);

  UserKeyPtr own_;
  ClusterKeysPtr cluster_;
  security::KeyId file_;
  JobKeyPtr job_;
  std::vector<Rank> ranks_;
  std::size_t next_ = 0;
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<GroupKeys> keys_;
  KeyRoomPtr room_;
  std::optional<Error> error_;
  bool no_memory_ = false;  ///< for an error's text there may be none either
};

}  // namespace gradwire::control
