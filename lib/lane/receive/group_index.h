// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Finds a lane's groups by what packets contain: the tag that every packet carries, and the
/// address it comes from. A look-up costs the same however many groups there are and allocates
/// nothing; adding a group does. Hashes are keyed, because clients choose groups, and senders
/// choose tags and addresses. Groups with the same tag form a chain, and the token of a link tells
/// them apart; only users of this host can make such groups. One lane owns it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/require.h"
#include "base/sip_hash.h"
#include "base/types.h"
#include "collective/shard_config.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::lane {

/// Not noexcept, so that libstdc++ stores each entry's hash. Otherwise a look-up would compute the
/// hash of every entry that it passes in its bucket.
struct KeyedHash {
  SipHashKey secret;

  [[nodiscard]] std::size_t operator()(const wire::IpAddress& ip) const {
    return sip_hash(secret, std::as_bytes(std::span(ip.bytes)));
  }
};

class GroupIndex {
 public:
  static constexpr std::uint16_t kNoSlot = 0xffff;

  /// @param groups how many slots there are; below kNoSlot.
  GroupIndex(const SipHashKey& secret, std::size_t groups)
      : multiplier_(secret.k0 | 1),
        shift_(64 - std::bit_width(std::bit_ceil(2 * groups + 1)) + 1),
        first_(std::bit_ceil(2 * groups + 1), kNoSlot),
        entries_(groups),
        sources_(2 * groups, KeyedHash{secret}) {}

  /// Call it once for each group. A group without neighbors is not indexed.
  void add(const collective::ShardConfig& config, std::uint16_t slot) {
    if (config.nranks < 2) return;
    const std::uint32_t tag = wire::group_tag(config.key);
    std::uint16_t& first = first_[bucket_of(tag)];
    entries_[slot] = {tag, first};
    first = slot;
    for_each_source(config, [this](const wire::IpAddress& ip) { ++sources_[ip]; });
  }
  void remove(const collective::ShardConfig& config, std::uint16_t slot) noexcept {
    if (config.nranks < 2) return;
    std::uint16_t* at = &first_[bucket_of(entries_[slot].tag)];
    while (*at != slot) {
      require(*at != kNoSlot, "a group that is removed is in its chain");
      at = &entries_[*at].next;
    }
    *at = entries_[slot].next;
    for_each_source(config, [this](const wire::IpAddress& ip) {
      const auto found = sources_.find(ip);
      if (found != sources_.end() && --found->second == 0) sources_.erase(found);
    });
  }

  /// @return the slot of a group of that tag, or kNoSlot; next() has the others.
  [[nodiscard]] std::uint16_t find(std::uint32_t tag) const noexcept {
    return with_tag(tag, first_[bucket_of(tag)]);
  }
  [[nodiscard]] std::uint16_t next(std::uint16_t slot) const noexcept {
    return with_tag(entries_[slot].tag, entries_[slot].next);
  }
  /// Whether a neighbor of some group sends from that address.
  [[nodiscard]] bool has_neighbor(const wire::IpAddress& ip) const noexcept {
    return sources_.contains(ip);
  }

 private:
  template <class Action>
  static void for_each_source(const collective::ShardConfig& config, Action&& action) {
    action(config.upstream.ip);
    action(config.downstream.ip);
    for (const auto* others : {&config.upstream.others, &config.downstream.others}) {
      for (const collective::LinkPath& path : *others) action(path.ip);
    }
  }
  struct Entry {
    std::uint32_t tag = 0;
    std::uint16_t next = kNoSlot;  ///< the next entry of its bucket
  };
  /// Dietzfelbinger et al., "A reliable randomized algorithm for the closest-pair problem", 1997:
  /// without knowing the multiplier nobody can choose tags that collide more often than others.
  [[nodiscard]] std::size_t bucket_of(std::uint32_t tag) const noexcept {
    return tag * multiplier_ >> shift_;
  }
  [[nodiscard]] std::uint16_t with_tag(std::uint32_t tag, std::uint16_t slot) const noexcept {
    while (slot != kNoSlot && entries_[slot].tag != tag) slot = entries_[slot].next;
    return slot;
  }

  std::uint64_t multiplier_;
  int shift_;
  std::vector<std::uint16_t> first_;  ///< by bucket
  std::vector<Entry> entries_;        ///< by slot
  std::unordered_map<wire::IpAddress, std::uint32_t, KeyedHash> sources_;
};

}  // namespace gradwire::lane
