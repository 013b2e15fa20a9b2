// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Secrets of pairs of daemons that were made: doc/security.md, Secret of a pair. So many of them
/// are kept; the one that was used longest ago goes first. The control thread owns it; it
/// allocates. Who works with a pair has it as long as it likes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "security/key_schedule.h"
#include "security/secret.h"

namespace gradwire::control {

struct PairSecret : security::InSecretMemory {
  explicit PairSecret(const security::Secret32& secret) : bytes(secret) {}
  security::Secret32 bytes;
};
using PairPtr = std::shared_ptr<const PairSecret>;

/// What a pair follows from, with this daemon's incarnation.
struct PairName {
  security::PublicKey own{};
  security::PublicKey other{};
  std::uint64_t incarnation = 0;  ///< of the other
  security::KeyId file{};         ///< of the cluster secret
  auto operator<=>(const PairName&) const = default;
};

class PairCache {
 public:
  static constexpr std::size_t kKept = 4'096;
  /// @param most  only tests change it.
  explicit PairCache(std::size_t most = kKept) : most_(most) {}

  /// @return nullptr if it has to be made.
  [[nodiscard]] PairPtr find(const PairName& name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    by_use_.splice(by_use_.end(), by_use_, found->second);
    return found->second->second;
  }
  void keep(const PairName& name, PairPtr pair) {
    if (find(name) != nullptr) return;  // another group has made it meanwhile
    by_name_[name] = by_use_.insert(by_use_.end(), {name, std::move(pair)});
    if (by_use_.size() > most_) forget(by_use_.begin());
  }
  /// The private key of `own` is retired.
  void forget_key(const security::PublicKey& own) {
    // Names begin with it, so they lie side by side; zeros come first.
    auto pair = by_name_.lower_bound({own, {}, 0, {}});
    while (pair != by_name_.end() && pair->first.own == own) {
      by_use_.erase(pair->second);
      pair = by_name_.erase(pair);
    }
  }
  /// The file's key was taken away.
  void forget_file(const security::KeyId& file) {
    for (auto pair = by_use_.begin(); pair != by_use_.end();) {
      pair = pair->first.file == file ? forget(pair) : std::next(pair);
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return by_use_.size(); }

 private:
  using Uses = std::list<std::pair<PairName, PairPtr>>;
  Uses::iterator forget(Uses::iterator pair) {
    by_name_.erase(pair->first);
    return by_use_.erase(pair);
  }

  const std::size_t most_;
  Uses by_use_;  ///< the latest last
  std::map<PairName, Uses::iterator> by_name_;
};

}  // namespace gradwire::control
