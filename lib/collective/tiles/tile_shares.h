// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How much of an all-reduce by tiles each rank owns, if that is not the ring's segment
/// (doc/protocol/tiles.md, Owners and shares): by the rates of all ranks' ports, so that whoever
/// has room to spare sums more. All ranks of a group have the same shares, from its table. Whole
/// numbers alone, so that every machine comes to the same. Made once, which allocates; any thread
/// may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gradwire::collective {

class TileShares {
 public:
  /// @param rates   [all ranks] of the group, at most kMaxRanks: each rank's rate, the sum of its
  ///                addresses', in any unit; 0: not known.
  /// @param nranks  that have members, one at least; the others are behind them.
  /// @return nothing if each rank owns its segment of the ring.
  [[nodiscard]] static std::optional<TileShares> make(std::span<const std::uint32_t> rates,
                                                      std::uint16_t nranks);

  [[nodiscard]] std::size_t ranks() const noexcept { return before_.size() - 1; }
  /// A rank's, of all(); 0: it owns nothing.
  [[nodiscard]] std::uint64_t share_of(std::uint32_t rank) const noexcept {
    return before_[rank + 1] - before_[rank];
  }
  [[nodiscard]] std::uint64_t all() const noexcept { return before_.back(); }
  /// The first that the rank owns of so many units, below 2^60; ranks(): the end.
  [[nodiscard]] std::uint64_t begin_of(std::uint32_t rank, std::uint64_t units) const noexcept {
    return part_of(units, before_[rank]);
  }
  /// What the rank that owns most has, rounded down: it may be a unit more.
  [[nodiscard]] std::uint64_t most_of(std::uint64_t units) const noexcept {
    return part_of(units, most_);
  }

 private:
  explicit TileShares(std::span<const std::uint64_t> shares);
  [[nodiscard]] std::uint64_t part_of(std::uint64_t units, std::uint64_t shares) const noexcept;

  std::vector<std::uint64_t> before_;  ///< [ranks + 1]: the sum of the shares of all ranks before
  std::uint64_t most_ = 0;
};

}  // namespace gradwire::collective
