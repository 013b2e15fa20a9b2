// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A lane's groups as a stranger's packet names them: by the key that a hello carries, and by the
/// addresses that neighbours send from. A look-up costs the same however many groups there are and
/// allocates nothing; adding a group does. Keyed hashes: clients choose keys, and whoever sends
/// chooses addresses. One lane owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "base/sip_hash.h"
#include "base/types.h"
#include "collective/shard.h"
#include "wire/frame.h"

namespace gradwire::lane {

/// Not noexcept, so that libstdc++ keeps each entry's hash beside it: else a look-up hashes every
/// entry that it passes in its bucket.
struct KeyedHash {
  SipHashKey secret;

  [[nodiscard]] std::size_t operator()(const GroupKey& key) const {
    const std::array<std::uint64_t, 2> words = {key.group_id, key.epoch};
    return sip_hash(secret, std::as_bytes(std::span(words)));
  }
  [[nodiscard]] std::size_t operator()(const wire::IpAddress& ip) const {
    return sip_hash(secret, std::as_bytes(std::span(ip.bytes)));
  }
};

class GroupIndex {
 public:
  static constexpr std::uint16_t kNoSlot = 0xffff;

  GroupIndex(const SipHashKey& secret, std::size_t groups)
      : keys_(groups, KeyedHash{secret}), sources_(2 * groups, KeyedHash{secret}) {}

  /// Once for each group. One that has no neighbours is not found.
  void add(const collective::ShardConfig& config, std::uint16_t slot) {
    if (config.nranks < 2) return;
    keys_[config.key] = slot;
    ++sources_[config.upstream_ip];
    ++sources_[config.downstream_ip];
  }
  void remove(const collective::ShardConfig& config) noexcept {
    if (config.nranks < 2) return;
    keys_.erase(config.key);
    for (const wire::IpAddress& ip : {config.upstream_ip, config.downstream_ip}) {
      const auto found = sources_.find(ip);
      if (found != sources_.end() && --found->second == 0) sources_.erase(found);
    }
  }

  /// @return the slot of the group, or kNoSlot.
  [[nodiscard]] std::uint16_t find(const GroupKey& key) const noexcept {
    const auto found = keys_.find(key);
    return found == keys_.end() ? kNoSlot : found->second;
  }
  /// Whether a neighbour of some group sends from that address.
  [[nodiscard]] bool has_neighbour(const wire::IpAddress& ip) const noexcept {
    return sources_.contains(ip);
  }

 private:
  std::unordered_map<GroupKey, std::uint16_t, KeyedHash> keys_;
  std::unordered_map<wire::IpAddress, std::uint32_t, KeyedHash> sources_;
};

}  // namespace gradwire::lane
