// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A FIFO of fixed capacity, allocated once. One lane owns it.
#pragma once

#include <cstddef>
#include <vector>

#include "base/require.h"

namespace gradwire::collective {

template <class T>
class FixedQueue {
 public:
  explicit FixedQueue(std::size_t capacity) : items_(capacity), capacity_(capacity) {}

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] bool full() const noexcept { return size_ == capacity_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& front() noexcept {
    require_dear([&] { return size_ > 0; }, "what is read of a queue is in it");
    return items_[head_];
  }
  template <class Condition>
  [[nodiscard]] bool any_of(Condition&& condition) const noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      if (condition(items_[(head_ + i) % items_.size()])) return true;
    }
    return false;
  }
  /// @return whether there was room.
  [[nodiscard]] bool push(const T& item) noexcept {
    if (full()) return false;
    add() = item;
    return true;
  }
  /// It is not full.
  /// @return its new last item, which has some former one's value.
  [[nodiscard]] T& add() noexcept {
    require(!full(), "what is added to a queue has room there");
    std::size_t tail = head_ + size_;
    if (tail >= capacity_) tail -= capacity_;
    ++size_;
    return items_[tail];
  }
  void clear() noexcept { head_ = size_ = 0; }
  void pop() noexcept {
    require(size_ > 0, "what is taken from a queue is in it");
    if (++head_ == capacity_) head_ = 0;
    --size_;
  }

 private:
  std::vector<T> items_;
  std::size_t capacity_;  ///< items_.size(), which would be a division for each item
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace gradwire::collective
