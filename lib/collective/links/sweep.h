// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A list whose items each have something to do at a time of their own. It is gone through when the
/// first of them may be due, in looks at kLooksInRound items at most, so that a round costs the
/// same however many there are. One lane owns it; it allocates at construction only; time is a
/// parameter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/require.h"
#include "base/types.h"

namespace gradwire::collective {

template <class Item>
class Sweep {
 public:
  static constexpr std::uint32_t kLooksInRound = 256;

  /// What a look at an item says.
  struct Seen {
    enum class Next : std::uint8_t { kStays, kGoes, kStops };
    Next next = Next::kStays;
    TimeNs due = kNever;  ///< kStays: the item's; kStops: when the sweep goes on, with this item
  };

  /// @param most  items in it at a time.
  explicit Sweep(std::size_t most) { items_.reserve(most); }

  /// The item is not in it.
  void add(Item item, TimeNs due) {
    require(items_.size() < items_.capacity(), "a list has room for each of its items");
    items_.push_back(item);
    may_be_due(due);
  }
  /// An item that is in it has something to do then.
  void may_be_due(TimeNs due) noexcept {
    next_due_ = std::min(next_due_, due);
    due_after_ = std::min(due_after_, due);
  }
  /// When run() has something to do; kNever if nothing is due at any time.
  [[nodiscard]] TimeNs next_due() const noexcept { return next_due_; }
  [[nodiscard]] std::span<const Item> items() const noexcept { return items_; }

  /// @param look  called with an item; it may add others.
  template <class Look>
  void run(TimeNs now, Look&& look) {
    if (left_ == 0) {
      left_ = items_.size();
      due_after_ = kNever;
    }
    require(left_ <= items_.size(), "what was not looked at is in the list");
    // From the back, so that who takes the place of one that goes was looked at, or is new: add()
    // has seen when that one is due.
    for (std::uint32_t looks = 0; left_ > 0; ++looks) {
      if (looks == kLooksInRound) {
        next_due_ = now;
        return;
      }
      const std::size_t at = left_ - 1;
      const Seen seen = look(items_[at]);
      if (seen.next == Seen::Next::kStops) {
        next_due_ = seen.due;
        return;
      }
      if (seen.next == Seen::Next::kGoes) {
        items_[at] = items_.back();
        items_.pop_back();
      } else {
        due_after_ = std::min(due_after_, seen.due);
      }
      --left_;
    }
    next_due_ = due_after_;
  }
  void clear() noexcept {
    items_.clear();
    left_ = 0;
    next_due_ = kNever;
  }

 private:
  std::vector<Item> items_;
  std::size_t left_ = 0;       ///< of items_, from the front: not looked at yet
  TimeNs due_after_ = kNever;  ///< when the first is due of those that were looked at
  TimeNs next_due_ = kNever;
};

}  // namespace gradwire::collective
