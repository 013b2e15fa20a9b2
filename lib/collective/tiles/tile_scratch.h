// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The places of an owner's lane for the parts of tiles that have started: each has a row for every
/// rank. They are there for the life of the group. One lane owns it; it allocates at construction
/// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/require.h"
#include "base/zeroed_array.h"
#include "collective/tiles/tile_places.h"

namespace gradwire::collective {

class TileScratch {
 public:
  /// @param ranks  that give parts.
  TileScratch(const TilePlaces& places, std::uint16_t ranks)
      : ranks_(ranks), row_bytes_(places.result_bytes), memory_(places.parts * places.part_bytes) {
    for (std::uint32_t i = places.parts; i-- > 0;) free_.push_back(static_cast<std::uint8_t>(i));
    free_count_ = places.parts;
  }

  [[nodiscard]] bool empty() const noexcept { return free_count_ == 0; }
  [[nodiscard]] std::uint8_t take() noexcept {
    require(free_count_ > 0, "who takes a place for parts has seen that one is free");
    return free_[--free_count_];
  }
  void give_back(std::uint8_t place) noexcept {
    require(free_count_ < free_.size(), "a place for parts is given back once");
    free_[free_count_++] = place;
  }
  /// What a rank gives to the tile that has the place.
  [[nodiscard]] std::byte* row(std::uint8_t place, std::uint16_t rank) noexcept {
    return memory_.data() + (std::size_t{place} * ranks_ + rank) * row_bytes_;
  }

 private:
  const std::uint16_t ranks_;
  const std::uint64_t row_bytes_;  ///< what one rank gives to a tile, at most
  ZeroedArray<std::byte> memory_;
  std::vector<std::uint8_t> free_;  ///< [0, free_count_): a stack
  std::size_t free_count_ = 0;
};

}  // namespace gradwire::collective
