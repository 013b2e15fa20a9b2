// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Calls of ops by tiles that others told a rank without members of, and that are not posted there
/// yet. As many are kept as a rank tells of at once, of the lowest ops. All ranks tell of the same,
/// so that is enough; if they do not, some have called something else, and whoever told of what is
/// not kept repeats it. One lane owns it; it does not allocate.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/types.h"
#include "collective/ops/chunk.h"

namespace gradwire::collective {

/// So many calls of ops that have not entered there, as far as it knows, a rank has on their way.
inline constexpr std::uint32_t kCallsAhead = 2;

struct ToldCall {
  std::uint64_t op_seq = 0;  ///< 0: none
  std::uint16_t rank = 0;    ///< that told of it first
  std::uint8_t since = 0;    ///< as in wire::TileHeader
  OpCall call{};
};

class ToldCalls {
 public:
  void keep(const ToldCall& told) noexcept {
    for (const ToldCall& kept : calls_) {
      if (kept.op_seq == told.op_seq) return;
    }
    ToldCall& place = *std::ranges::max_element(calls_, {}, order_of);
    if (order_of(told) < order_of(place)) place = told;
  }
  /// What was told of the lowest op; nullptr if there is none.
  [[nodiscard]] const ToldCall* oldest() const noexcept {
    const ToldCall& least = *std::ranges::min_element(calls_, {}, order_of);
    return least.op_seq == 0 ? nullptr : &least;
  }
  /// Ops up to that one are posted: what tells of them comes again.
  void forget(std::uint64_t op_seq) noexcept {
    for (ToldCall& kept : calls_) {
      if (kept.op_seq <= op_seq) kept.op_seq = 0;
    }
  }

 private:
  /// Free places are behind all ops.
  [[nodiscard]] static std::uint64_t order_of(const ToldCall& told) noexcept {
    return told.op_seq == 0 ? UINT64_MAX : told.op_seq;
  }

  std::array<ToldCall, kCallsAhead> calls_{};
};

}  // namespace gradwire::collective
