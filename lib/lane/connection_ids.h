// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Connection ids: an index below a random generation, so that a packet of an earlier epoch, or a
/// guess, finds nothing. The control thread allocates them, since a shard's configuration needs
/// them before the shard exists; each lane has a table of those that are its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"

namespace gradwire::lane {

inline constexpr std::uint32_t kConnectionIndexBits = 12;
inline constexpr std::uint32_t kMaxConnections = 1u << kConnectionIndexBits;

/// The control thread's: ids of all lanes of the daemon.
class ConnectionIds {
 public:
  ConnectionIds();
  /// @return an id that is not in use and is not the last one that had its index; never 0.
  [[nodiscard]] Result<std::uint32_t> allocate();
  /// After the group's shard is closed.
  void release(std::uint32_t id) noexcept;
  [[nodiscard]] std::uint32_t used() const noexcept { return used_; }

 private:
  struct Slot {
    std::uint32_t last_id = 0;
    bool in_use = false;
  };
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;  // oldest first, so that an index rests before it comes again
  std::size_t free_head_ = 0;
  std::uint32_t used_ = 0;
};

/// A lane's: id -> slot of its groups. Nothing here allocates.
class ConnectionTable {
 public:
  static constexpr std::uint16_t kNoSlot = 0xffff;

  /// @return the slot of the group that `id` belongs to, or kNoSlot.
  [[nodiscard]] std::uint16_t find(std::uint32_t id) const noexcept {
    const Entry& entry = entries_[id & (kMaxConnections - 1)];
    return id != 0 && entry.id == id ? entry.slot : kNoSlot;
  }
  void insert(std::uint32_t id, std::uint16_t slot) noexcept {
    if (id != 0) entries_[id & (kMaxConnections - 1)] = {id, slot};
  }
  void erase(std::uint32_t id) noexcept {
    if (find(id) != kNoSlot) entries_[id & (kMaxConnections - 1)] = {};
  }

 private:
  struct Entry {
    std::uint32_t id = 0;
    std::uint16_t slot = kNoSlot;
  };
  std::array<Entry, kMaxConnections> entries_{};
};

}  // namespace gradwire::lane
