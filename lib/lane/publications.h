// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The status of each of a lane's groups, as the lane last published it. The lane writes; any
/// thread reads, without a lock, and then allocates.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/require.h"
#include "base/types.h"
#include "command/messages.h"
#include "lane/snapshot.h"

namespace gradwire::lane {

class Publications {
 public:
  static constexpr TimeNs kSpacingNs = 10'000'000;
  /// How many groups a round publishes. The next rounds publish the rest.
  static constexpr std::size_t kPerRound = 64;

  explicit Publications(std::uint16_t most) : statuses_(most), idle_(most) {
    for (std::atomic<bool>& idle : idle_) idle.store(true, std::memory_order_relaxed);
  }

  // The lane alone:
  [[nodiscard]] bool due(TimeNs now) const noexcept { return unfinished() || now >= next_; }
  /// Whether some groups are still to be published.
  [[nodiscard]] bool unfinished() const noexcept { return left_ != 0; }
  /// Publishing is due. @return whether it begins now, with all `groups`.
  [[nodiscard]] bool begin(TimeNs now, std::size_t groups) noexcept {
    if (unfinished()) return false;
    next_ = now + kSpacingNs;
    left_ = groups;
    return true;
  }
  /// Which of the lane's groups this round publishes. The last ones come first: if a group is
  /// removed meanwhile, some are published again, and none is left out.
  [[nodiscard]] std::span<const std::uint16_t> next_of(
      std::span<const std::uint16_t> groups) noexcept {
    const std::size_t end = std::min(left_, groups.size());
    const std::size_t count = std::min(end, kPerRound);
    left_ = end - count;
    return groups.subspan(left_, count);
  }
  void hasten(TimeNs now) noexcept { next_ = now; }
  void write(std::size_t index, const command::PublishedStatus& status, bool idle) noexcept {
    require(index < statuses_.size(), "each slot has a place to publish in");
    statuses_[index].write(status);
    idle_[index].store(idle, std::memory_order_relaxed);
  }
  void clear(std::size_t index) noexcept { write(index, {}, true); }

  // Any thread:
  [[nodiscard]] std::vector<command::PublishedStatus> read(bool idle_too) const {
    std::vector<command::PublishedStatus> out;
    for (std::size_t i = 0; i < statuses_.size(); ++i) {
      if (!idle_too && idle_[i].load(std::memory_order_relaxed)) continue;
      const command::PublishedStatus published = statuses_[i].read();
      if (published.group_handle != 0) out.push_back(published);
    }
    return out;
  }

 private:
  std::vector<Snapshot<command::PublishedStatus>> statuses_;  ///< by the group's slot
  std::vector<std::atomic<bool>> idle_;  ///< by slot: its group was GroupSlot::shown, or it is free
  TimeNs next_ = 0;
  std::size_t left_ = 0;  ///< the first ones of the lane's groups
};

}  // namespace gradwire::lane
