// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The X25519 keys of a daemon's users, and when they are retired: doc/security.md, Renewal. Their
/// age is counted in groups that were begun, of whatever users, so that each epoch that was begun
/// with a key is remembered (Epochs) until after the key is retired. The control thread owns it; it
/// allocates. A key that somebody still works with outlives its retirement by that.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "control/formation/epochs.h"
#include "security/x25519.h"

namespace gradwire::control {

using UserKeyPtr = std::shared_ptr<const security::X25519Key>;

class UserKeys {
 public:
  /// Tests have lower ones.
  struct Bounds {
    std::uint64_t renewed_after = Epochs::kKept / 2;  ///< groups since a key was made
    std::uint64_t retired_after = Epochs::kKept;      ///< likewise; at least twice the other
    std::size_t users = 1'024;
  };
  /// @param is_here     whether a user has clients now; empty: nobody has.
  /// @param on_retired  is told of each key that is cleared.
  UserKeys(const Bounds& bounds, std::function<bool(uid_t)> is_here,
           std::function<void(const security::PublicKey&)> on_retired)
      : bounds_(bounds), is_here_(std::move(is_here)), on_retired_(std::move(on_retired)) {}
  UserKeys(const UserKeys&) = delete;
  UserKeys& operator=(const UserKeys&) = delete;

  /// The one that goes into the entries of this user from now on. Makes it if there is none, or the
  /// one before is to be renewed; the user who asked longest ago may lose theirs for it.
  [[nodiscard]] Result<UserKeyPtr> current(uid_t uid);
  /// @return nullptr if the user has no such key, or has it no more.
  [[nodiscard]] UserKeyPtr find(uid_t uid, const security::PublicKey& key) const;
  /// A group was begun, and its epoch remembered. Retires what has become too old.
  void begun();

  [[nodiscard]] std::size_t users() const noexcept { return users_.size(); }
  /// How many were made so far.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }

 private:
  struct Held {
    std::uint64_t number;  ///< of all that were made
    UserKeyPtr key;
  };
  struct User {
    std::uint64_t asked = 0;
    std::vector<Held> keys;  ///< the newest last; two at most
  };
  struct Age {
    uid_t uid;
    std::uint64_t made_at;  ///< of begun_
  };
  /// Takes the oldest away.
  void retire_first(User& user);
  void make_room();

  const Bounds bounds_;
  const std::function<bool(uid_t)> is_here_;
  const std::function<void(const security::PublicKey&)> on_retired_;
  std::map<uid_t, User> users_;
  std::map<std::uint64_t, uid_t> by_asked_;
  std::map<std::uint64_t, Age> by_number_;  ///< of all keys that are held: the oldest first
  std::uint64_t begun_ = 0;
  std::uint64_t made_ = 0;
  std::uint64_t asked_ = 0;
};

}  // namespace gradwire::control
