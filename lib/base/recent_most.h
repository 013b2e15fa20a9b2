// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The largest of many values in the last minute: what one thread notes, any thread reads. In parts
/// of ten seconds, so that it forgets what is older than a minute, and some seconds later at most.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/counter.h"
#include "base/types.h"

namespace gradwire {

class RecentMost {
 public:
  static constexpr TimeNs kPartNs = 10'000'000'000;
  static constexpr std::size_t kParts = 7;  // six whole ones, and the one that goes on

  /// The writer: a compare, as long as the value is not the largest.
  void note(std::uint64_t value) noexcept {
    std::uint64_t& most = parts_[at_];
    if (value > most) __atomic_store_n(&most, value, __ATOMIC_RELAXED);
  }
  /// The writer, every second or more often. Time never decreases.
  void turn(TimeNs now) noexcept {
    const TimeNs number = now / kPartNs;
    number_ = std::max(number_, number - static_cast<TimeNs>(kParts));
    while (number_ < number) {
      at_ = static_cast<std::size_t>(++number_) % kParts;
      __atomic_store_n(&parts_[at_], std::uint64_t{0}, __ATOMIC_RELAXED);
    }
  }
  /// Any thread.
  [[nodiscard]] std::uint64_t read() const noexcept {
    std::uint64_t most = 0;
    for (const std::uint64_t& part : parts_) most = std::max(most, read_counter(part));
    return most;
  }

 private:
  std::array<std::uint64_t, kParts> parts_{};
  std::size_t at_ = 0;
  TimeNs number_ = 0;  // of the part at at_
};

}  // namespace gradwire
