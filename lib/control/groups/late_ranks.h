// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// For which ranks the ops of a group have waited, and how long: a straggler's history. Plain data
/// of a bounded size; the control thread owns it.
///
/// Who is kept is decided as by "space saving" (A. Metwally, D. Agrawal and A. El Abbadi,
/// "Efficient computation of frequent and top-k elements in data streams", ICDT 2005): every rank
/// for which ops have waited more than a kMost-th of all the time is. If new ones began with
/// nothing, ranks that were late by turns would forget each other, as long as others had once been
/// late for longer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"

namespace gradwire::control {

class LateRanks {
 public:
  /// Ranks of which is kept how long ops have waited for them.
  static constexpr std::size_t kMost = 16;

  struct Rank {
    std::uint16_t rank = 0;
    TimeNs waited_ns = 0;
    TimeNs last_at = 0;  ///< when ops waited for it last
    /// What `waited_ns` may be at most, if the rank was known and forgotten before.
    TimeNs at_most_ns = 0;
  };

  /// Ops have waited for the rank for `ns` more. If kMost others are known, the one for which ops
  /// have waited least, at most, is forgotten.
  void add(std::uint16_t rank, TimeNs ns, TimeNs now) noexcept {
    Rank* const all = ranks_.data();
    Rank* found = std::find_if(all, all + count_, [&](const Rank& r) { return r.rank == rank; });
    if (found == all + count_) {
      if (count_ < kMost) {
        ++count_;
      } else {
        found = std::min_element(all, all + count_, [](const Rank& a, const Rank& b) {
          return a.at_most_ns < b.at_most_ns;
        });
      }
      *found = {rank, 0, 0, found->at_most_ns};
    }
    found->waited_ns += ns;
    found->at_most_ns += ns;
    found->last_at = now;
  }
  /// In no order.
  [[nodiscard]] std::span<const Rank> ranks() const noexcept { return {ranks_.data(), count_}; }

 private:
  std::array<Rank, kMost> ranks_{};
  std::size_t count_ = 0;
};

}  // namespace gradwire::control
