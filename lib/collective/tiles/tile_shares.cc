// SPDX-License-Identifier: BSD-3-Clause
#include "collective/tiles/tile_shares.h"

#include <algorithm>
#include <numeric>

#include "base/require.h"
#include "base/types.h"

namespace gradwire::collective {
namespace {

// Standard C++ has no such type; both compilers do.
__extension__ using Wide = unsigned __int128;

/// Steps of a share, and of the time in which the fastest port takes the whole op.
constexpr std::uint64_t kShareSteps = std::uint64_t{1} << 32;
constexpr std::uint64_t kTimeSteps = std::uint64_t{1} << 16;

/// How much of an op ranks can own, if it takes a time. The op's bytes are `op` here: what the
/// fastest port takes in kTimeSteps. So another rank's takes its rate in one step.
class Speeds {
 public:
  /// @param nranks  that have members: more than two.
  Speeds(std::span<const std::uint32_t> rates, std::uint16_t nranks)
      : rates_(rates), nranks_(nranks), op_(*std::ranges::max_element(rates) * kTimeSteps) {}

  /// Whether all together own the op.
  [[nodiscard]] bool own_all(std::uint64_t time) const noexcept {
    Wide with_members = 0;
    Wide without = 0;
    for (std::size_t rank = 0; rank < rates_.size(); ++rank) {
      (rank < nranks_ ? with_members : without) += free(rank, time);
    }
    // Both have their denominators.
    const Wide with = nranks_ - 2u;
    return with_members * nranks_ + without * with >= Wide{op_} * nranks_ * with;
  }
  [[nodiscard]] std::uint64_t share(std::size_t rank, std::uint64_t time) const noexcept {
    const std::uint32_t for_each = rank < nranks_ ? nranks_ - 2u : nranks_;
    return static_cast<std::uint64_t>(free(rank, time) * kShareSteps / (Wide{op_} * for_each));
  }

 private:
  /// What its port can carry of others' parts: one with members sends an op's bytes besides.
  [[nodiscard]] Wide free(std::size_t rank, std::uint64_t time) const noexcept {
    const Wide carries = Wide{rates_[rank]} * time;
    if (rank >= nranks_) return carries;
    return carries > op_ ? carries - op_ : 0;
  }

  std::span<const std::uint32_t> rates_;
  std::uint16_t nranks_;
  std::uint64_t op_;
};

bool all_alike(std::span<const std::uint32_t> rates) noexcept {
  return std::ranges::adjacent_find(rates, std::ranges::not_equal_to{}) == rates.end();
}

}  // namespace

std::optional<TileShares> TileShares::make(std::span<const std::uint32_t> rates,
                                           std::uint16_t nranks) {
  require(nranks > 0 && nranks <= rates.size() && rates.size() <= kMaxRanks,
          "shares are of a group that has members");
  const bool known = std::ranges::find(rates, 0u) == rates.end();
  const bool have_members = nranks == rates.size();
  if (have_members && (!known || all_alike(rates))) return {};
  std::vector<std::uint64_t> shares(rates.size(), 1);
  // If two ranks have members, each sends the whole op, whoever owns it.
  if (!known || nranks <= 2) return TileShares(shares);

  const Speeds speeds(rates, nranks);
  // The fastest port alone, a member's or not, sums all in the time that it takes for nranks ops.
  std::uint64_t too_short = 0;
  std::uint64_t enough = std::uint64_t{nranks} * kTimeSteps;
  require(speeds.own_all(enough), "the fastest port sums an op in the time of nranks");
  while (enough - too_short > 1) {
    const std::uint64_t middle = too_short + (enough - too_short) / 2;
    (speeds.own_all(middle) ? enough : too_short) = middle;
  }
  for (std::size_t rank = 0; rank < rates.size(); ++rank) shares[rank] = speeds.share(rank, enough);
  return TileShares(shares);
}

TileShares::TileShares(std::span<const std::uint64_t> shares) : before_(shares.size() + 1) {
  std::partial_sum(shares.begin(), shares.end(), before_.begin() + 1);
  most_ = *std::ranges::max_element(shares);
}

std::uint64_t TileShares::part_of(std::uint64_t units, std::uint64_t shares) const noexcept {
  return static_cast<std::uint64_t>(Wide{units} * shares / before_.back());
}

}  // namespace gradwire::collective
