// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/paths.h"

#include <algorithm>

namespace gradwire::control {
namespace {

/// Gives lanes their paths, one after the other.
class Dealer {
 public:
  explicit Dealer(std::span<const NeighborPath> paths) : paths_(paths), lanes_(paths.size(), 0) {
    rates_are_known_ =
        std::ranges::none_of(paths, [](const NeighborPath& path) { return path.rate_bps == 0; });
  }

  std::size_t next() {
    std::size_t best = 0;
    for (std::size_t i = 1; i < paths_.size(); ++i) {
      if (is_better(i, best)) best = i;
    }
    ++lanes_[best];
    return best;
  }
  [[nodiscard]] std::size_t used() const {
    return paths_.size() - static_cast<std::size_t>(std::ranges::count(lanes_, 0u));
  }

 private:
  [[nodiscard]] bool is_better(std::size_t i, std::size_t than) const {
    // What a lane more would leave each: rate / (lanes + 1).
    const std::uint64_t here = rate_of(i) * (lanes_[than] + 1);
    const std::uint64_t there = rate_of(than) * (lanes_[i] + 1);
    return here != there ? here > there : lanes_[i] < lanes_[than];
  }
  [[nodiscard]] std::uint64_t rate_of(std::size_t i) const {
    return rates_are_known_ ? paths_[i].rate_bps : 1;
  }

  std::span<const NeighborPath> paths_;
  std::vector<std::uint64_t> lanes_;  ///< by path
  bool rates_are_known_ = false;
};

}  // namespace

std::size_t first_path(std::span<const NeighborPath> paths, std::uint8_t lane) {
  Dealer dealer(paths);
  for (std::uint8_t before = 0; before < lane; ++before) dealer.next();
  return dealer.next();
}

std::size_t paths_used(std::span<const NeighborPath> paths, std::size_t lanes) {
  Dealer dealer(paths);
  for (std::size_t lane = 0; lane < lanes; ++lane) dealer.next();
  return dealer.used();
}

std::size_t lanes_for_all(std::span<const NeighborPath> paths) {
  Dealer dealer(paths);
  // Rates that differ by more than any lanes can make good end the search.
  constexpr std::size_t kMost = 1024;
  std::size_t lanes = 0;
  for (; dealer.used() < paths.size() && lanes < kMost; ++lanes) dealer.next();
  return lanes;
}

}  // namespace gradwire::control
