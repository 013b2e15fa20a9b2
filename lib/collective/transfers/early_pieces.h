// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Places for pieces that came before their receive was posted, shared by all pairs of a lane.
/// One lane owns it; it allocates at construction only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/require.h"
#include "collective/transfers/pair_ends.h"

namespace gradwire::collective {

class EarlyPieces {
 public:
  static constexpr std::uint16_t kPlaces = 64;

  explicit EarlyPieces(std::uint32_t payload_bytes)
      : payload_bytes_(payload_bytes),
        memory_(std::make_unique_for_overwrite<std::byte[]>(std::size_t{kPlaces} * payload_bytes)) {
    for (std::uint16_t i = kPlaces; i-- > 0;) free_.push_back(i);
  }

  [[nodiscard]] bool full() const noexcept { return free_.empty(); }
  /// There is a place, and the payload is no longer than the group's.
  [[nodiscard]] std::uint16_t keep(std::span<const std::byte> payload) noexcept {
    require(!full() && payload.size() <= payload_bytes_,
            "an early piece has a place that holds it");
    const std::uint16_t place = free_.back();
    free_.pop_back();
    bytes_[place] = static_cast<std::uint32_t>(payload.size());
    std::memcpy(memory_of(place), payload.data(), payload.size());
    return place;
  }
  [[nodiscard]] std::span<const std::byte> payload(std::uint16_t place) noexcept {
    return {memory_of(place), bytes_[place]};
  }
  void give_back(std::uint16_t place) noexcept {
    require(free_.size() < kPlaces, "a place of an early piece is given back once");
    free_.push_back(place);
  }

 private:
  [[nodiscard]] std::byte* memory_of(std::uint16_t place) noexcept {
    return memory_.get() + std::size_t{place} * payload_bytes_;
  }
  std::uint32_t payload_bytes_;
  /// Never written at first: of many groups few places are ever touched, those freed last before
  /// others.
  std::unique_ptr<std::byte[]> memory_;
  std::array<std::uint32_t, kPlaces> bytes_{};
  std::vector<std::uint16_t> free_;
};

}  // namespace gradwire::collective
