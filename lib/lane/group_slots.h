// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The groups of one lane, each in a slot that never moves, and what the lane knows of each beside
/// its shard. The lane owns it; adding a group allocates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/require.h"
#include "base/types.h"
#include "collective/ops/op_spec.h"
#include "collective/shard.h"
#include "command/links.h"
#include "command/messages.h"

namespace gradwire::lane {

/// One group on this lane.
struct GroupSlot {
  collective::Shard* shard = nullptr;  ///< nullptr: the slot is free
  std::uint64_t handle = 0;
  std::uint16_t down_port = 0;
  std::uint16_t up_port = 0;
  std::uint32_t any_ports = 0;  ///< a bit for each that Outbox::any() may use
  std::uint32_t full_frame_bytes = 0;
  bool closed = false;
  bool abort_told = false;  ///< the control thread was told
  bool touched = false;     ///< a packet came for it in this round
  bool awake = true;
  bool expects = false;             ///< valid while it rests: it has an unfinished op
  bool moves = false;               ///< valid while it rests: that op is a collective
  bool rests_long = false;          ///< valid while it rests: for kLongRestNs at most
  bool shown = false;               ///< its status was published, and nothing has changed since
  std::uint64_t polled = 0;         ///< the last round that called it
  std::uint32_t quiet_rounds = 0;   ///< rounds in a row in which nothing happened to it
  TimeNs wake_at = kNever;          ///< while it rests
  TimeNs deadline = kNever;         ///< its shard's, when it began to rest
  std::uint16_t resting_place = 0;  ///< while it rests: in the list of those that rest
  const collective::OpSpec* specs = nullptr;
  std::uint64_t ready_seq = 0;   ///< ops up to this one may be posted
  std::uint64_t posted_seq = 0;  ///< ops up to this one were posted
  std::uint64_t done = 0;        ///< ops finished, in any order
  std::uint32_t streams = 0;     ///< ops posted and unfinished that are more than a few packets
  bool leaving = false;
  command::Request* leave = nullptr;  ///< a request that this lane has to return
  command::MembersWait members;
  bool has_report = false;  ///< `report` could not be sent yet, because there was no room
  command::LaneReport report;

  /// Whether packets come by and by: an op is unfinished.
  [[nodiscard]] bool expects_packets() const noexcept {
    return done < ready_seq || shard->expects_packets();
  }
};

class GroupSlots {
 public:
  explicit GroupSlots(std::uint16_t most) : slots_(most) { in_use_.reserve(most); }

  [[nodiscard]] GroupSlot& operator[](std::size_t index) noexcept { return slots_[index]; }
  [[nodiscard]] const GroupSlot& operator[](std::size_t index) const noexcept {
    return slots_[index];
  }
  [[nodiscard]] std::uint16_t index_of(const GroupSlot& slot) const noexcept {
    require_dear([&] { return &slot >= slots_.data() && &slot < slots_.data() + slots_.size(); },
                 "a slot is one of the lane's");
    return static_cast<std::uint16_t>(&slot - slots_.data());
  }
  /// Indexes of slots that have a group.
  [[nodiscard]] std::span<const std::uint16_t> in_use() const noexcept { return in_use_; }
  /// nullptr if the lane has no such group.
  [[nodiscard]] GroupSlot* find(std::uint64_t handle) noexcept {
    const auto found = by_handle_.find(handle);
    return found == by_handle_.end() ? nullptr : &slots_[found->second];
  }
  [[nodiscard]] bool full() const noexcept { return in_use_.size() == slots_.size(); }
  /// Gives a group a slot; full() is false.
  [[nodiscard]] GroupSlot& add(collective::Shard& shard, std::uint64_t handle) {
    require(!full() && !by_handle_.contains(handle), "a new group finds a free slot");
    const auto free = std::find_if(slots_.begin(), slots_.end(),
                                   [](const GroupSlot& slot) { return slot.shard == nullptr; });
    *free = GroupSlot{};
    free->shard = &shard;
    free->handle = handle;
    in_use_.push_back(index_of(*free));
    by_handle_[handle] = index_of(*free);
    return *free;
  }
  void remove(GroupSlot& slot) noexcept {
    const auto place = std::find(in_use_.begin(), in_use_.end(), index_of(slot));
    require(place != in_use_.end(), "a slot that is given back was in use");
    in_use_.erase(place);
    by_handle_.erase(slot.handle);
    slot = GroupSlot{};
  }

 private:
  std::vector<GroupSlot> slots_;  ///< slots never move, because others refer to them
  std::vector<std::uint16_t> in_use_;
  std::unordered_map<std::uint64_t, std::uint16_t> by_handle_;
};

}  // namespace gradwire::lane
