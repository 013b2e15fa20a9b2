// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Places of one size that an owner's lane has for tiles: for the parts of those that have started,
/// and for results that wait for whoever pulls them. They are there for the life of the group. One
/// lane owns it; it allocates at construction only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/require.h"
#include "base/zeroed_array.h"

namespace gradwire::collective {

class TileScratch {
 public:
  /// @param places  below 65,536.
  TileScratch(std::uint32_t places, std::uint64_t place_bytes)
      : place_bytes_(place_bytes), memory_(places * place_bytes) {
    for (std::uint32_t i = places; i-- > 0;) free_.push_back(static_cast<std::uint16_t>(i));
    free_count_ = places;
  }

  [[nodiscard]] bool empty() const noexcept { return free_count_ == 0; }
  [[nodiscard]] std::uint16_t take() noexcept {
    require(free_count_ > 0, "who takes a place for a tile has seen that one is free");
    return free_[--free_count_];
  }
  void give_back(std::uint16_t place) noexcept {
    require(free_count_ < free_.size(), "a place for a tile is given back once");
    free_[free_count_++] = place;
  }
  [[nodiscard]] std::byte* at(std::uint16_t place) noexcept {
    return memory_.data() + place * place_bytes_;
  }

 private:
  const std::uint64_t place_bytes_;
  ZeroedArray<std::byte> memory_;
  std::vector<std::uint16_t> free_;  ///< [0, free_count_): a stack
  std::size_t free_count_ = 0;
};

}  // namespace gradwire::collective
