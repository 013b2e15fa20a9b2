// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which ranks sum all-reduces in two steps, if not all do. All ranks of a group have the same
/// list, from its table. Made once, which allocates; any thread may read it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/require.h"

namespace gradwire::collective {

class Owners {
 public:
  /// @param ranks   one at least, ascending.
  /// @param nranks  of the group, those without members too.
  Owners(std::vector<std::uint16_t> ranks, std::uint16_t nranks)
      : ranks_(std::move(ranks)), places_(nranks, kNone) {
    require(!ranks_.empty(), "a group with owners has one at least");
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      require(ranks_[i] < nranks && (i == 0 || ranks_[i - 1] < ranks_[i]),
              "owners are ranks of the group, in ascending order");
      places_[ranks_[i]] = static_cast<std::uint16_t>(i);
    }
  }
  [[nodiscard]] std::uint16_t count() const noexcept {
    return static_cast<std::uint16_t>(ranks_.size());
  }
  [[nodiscard]] std::uint16_t nranks() const noexcept {
    return static_cast<std::uint16_t>(places_.size());
  }
  /// @param place  below count().
  [[nodiscard]] std::uint16_t rank_at(std::uint32_t place) const noexcept { return ranks_[place]; }
  [[nodiscard]] bool has(std::uint16_t rank) const noexcept { return places_[rank] != kNone; }
  /// Which of the owners an owner is, from 0 on.
  [[nodiscard]] std::uint16_t place_of(std::uint16_t rank) const noexcept { return places_[rank]; }

 private:
  static constexpr std::uint16_t kNone = UINT16_MAX;
  std::vector<std::uint16_t> ranks_;
  std::vector<std::uint16_t> places_;  ///< by rank
};

}  // namespace gradwire::collective
