// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The status of each of a lane's groups, as the lane last published it. The lane writes; any
/// thread reads, without a lock, and then allocates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/require.h"
#include "base/types.h"
#include "command/messages.h"
#include "lane/snapshot.h"

namespace gradwire::lane {

class Publications {
 public:
  static constexpr TimeNs kSpacingNs = 10'000'000;

  explicit Publications(std::uint16_t most) : statuses_(most), idle_(most) {
    for (std::atomic<bool>& idle : idle_) idle.store(true, std::memory_order_relaxed);
  }

  // The lane alone:
  [[nodiscard]] bool due(TimeNs now) const noexcept { return now >= next_; }
  void begin(TimeNs now) noexcept { next_ = now + kSpacingNs; }
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
};

}  // namespace gradwire::lane
