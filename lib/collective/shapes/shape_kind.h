// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The names of the shapes. Which one an op has collective/shapes/shape.h says.
#pragma once

#include <cstdint>

namespace gradwire::collective {

enum class Shape : std::uint8_t {
  kLocal,
  kExchange,
  kRing,
  kReducingHalf,
  kGatheringHalf,
  kWord,  ///< no chunks: all ranks have posted it, and each comes to know that
  kDirect,
  kTwoStep,
  kGathered,
  kTiles,
};

/// As operators and figures call it: the halves of the ring, and words that go round it, are
/// "ring".
[[nodiscard]] constexpr const char* name_of(Shape shape) noexcept {
  switch (shape) {
    case Shape::kLocal:
      return "local";
    case Shape::kExchange:
      return "exchange";
    case Shape::kDirect:
      return "direct";
    case Shape::kTwoStep:
      return "two-step";
    case Shape::kGathered:
      return "gathered";
    case Shape::kTiles:
      return "tiles";
    default:
      return "ring";
  }
}

}  // namespace gradwire::collective
