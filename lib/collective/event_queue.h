// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a shard tells its lane, until the lane takes it. One lane owns it; it allocates at
/// construction only.
#pragma once

#include "base/require.h"
#include "collective/fixed_queue.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class EventQueue {
 public:
  /// It has room for one event of each active op and of each change of state.
  explicit EventQueue(std::uint32_t max_active_ops) : events_(max_active_ops + 8) {}

  [[nodiscard]] std::size_t size() const noexcept { return events_.size(); }
  /// A post waits for a slot for its event: PostResult::kFull.
  void put(const Event& event) noexcept {
    require(events_.push(event),
            "there is room for an event of every active op and of every change of state");
  }
  [[nodiscard]] bool pop(Event& out) noexcept {
    if (events_.empty()) return false;
    out = events_.front();
    events_.pop();
    return true;
  }

 private:
  FixedQueue<Event> events_;
};

}  // namespace gradwire::collective
