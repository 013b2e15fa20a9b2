// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The keys of this daemon's cluster, one or two: doc/security.md, Rotation. They lie in secret
/// memory and never change: the daemon gets others when its files are read again. Any thread;
/// making one allocates.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "security/key_schedule.h"
#include "security/secret.h"

namespace gradwire::control {

class ClusterKeys : public security::InSecretMemory {
 public:
  /// @param second  nothing: there is one. One that is the first again counts as none.
  explicit ClusterKeys(const security::Secret32& first,
                       const std::optional<security::Secret32>& second = std::nullopt)
      : keys_{security::FileKeys(first), security::FileKeys(second.value_or(first))},
        count_(keys_[0].id == keys_[1].id ? 1 : 2) {}

  /// The first one first.
  [[nodiscard]] std::span<const security::FileKeys> all() const noexcept {
    return std::span(keys_).first(count_);
  }
  /// @return nullptr if there is none.
  [[nodiscard]] const security::FileKeys* by_id(const security::KeyId& id) const noexcept {
    for (const security::FileKeys& key : all()) {
      if (key.id == id) return &key;
    }
    return nullptr;
  }

 private:
  std::array<security::FileKeys, 2> keys_;
  std::size_t count_;
};
using ClusterKeysPtr = std::shared_ptr<const ClusterKeys>;

/// security.key_file and security.second_key_file; empty: there is none.
struct KeyFiles {
  std::string first;
  std::string second;
};

/// Reads them. A second file that does not exist is no second key: it comes and goes with a
/// rotation.
/// @return nullptr if there is no first; an error that names the file and what is wrong with it.
[[nodiscard]] Result<ClusterKeysPtr> read_cluster_keys(const KeyFiles& files);

/// A job's own key, as far as a daemon keeps it.
struct JobKey : security::InSecretMemory {
  explicit JobKey(const security::FileKeys& keys) : id(keys.id), secret(keys.job) {}
  security::KeyId id;
  security::Secret32 secret;
};
using JobKeyPtr = std::shared_ptr<const JobKey>;

/// Whether it is that of a job that has a key.
[[nodiscard]] inline bool is_key(const security::KeyId& id) noexcept {
  return id != security::KeyId{};
}

}  // namespace gradwire::control
