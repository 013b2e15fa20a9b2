// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What happens next in virtual time: a heap of events. Events of the same time come in the order
/// in which they were added, so that a run depends on nothing but its seed. One thread; it grows as
/// needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/types.h"

namespace gradwire::sim {

struct QueuedEvent {
  enum class Kind : std::uint8_t {
    kArrival,     ///< a frame that overtook others reaches its host: index of the flight
    kPort,        ///< the oldest frame of a host's port reaches it: index of the host
    kPoll,        ///< a host's lanes run: index of the host
    kDriverDone,  ///< a host's driver gives sent frames back: index of the host
    kTimer,       ///< of the scenario: index of the timer
  };
  TimeNs time = 0;
  std::uint64_t order = 0;
  std::uint32_t index = 0;
  Kind kind = Kind::kTimer;
};

class EventQueue {
 public:
  void push(TimeNs time, QueuedEvent::Kind kind, std::uint32_t index) {
    heap_.push_back({time, ++orders_, index, kind});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  [[nodiscard]] TimeNs next_time() const noexcept {
    return heap_.empty() ? kNever : heap_.front().time;
  }
  QueuedEvent pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const QueuedEvent event = heap_.back();
    heap_.pop_back();
    return event;
  }

 private:
  static bool later(const QueuedEvent& a, const QueuedEvent& b) noexcept {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
  std::vector<QueuedEvent> heap_;
  std::uint64_t orders_ = 0;
};

}  // namespace gradwire::sim
