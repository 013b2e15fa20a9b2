// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ops/op_faults.h"

#include "base/abort_detail.h"

namespace gradwire::collective {

AbortReason mismatch_of(const ShardConfig& config, std::uint64_t op_seq, const CallOf& one,
                        const CallOf& other, std::uint16_t culprit) noexcept {
  AbortReason reason{.code = AbortCode::kMismatch,
                     .culprit_rank = culprit,
                     .reporter_rank = config.rank,
                     .op_seq = op_seq};
  // Several ranks may see it at once, each its own pair: the lower rank first, so that two ranks
  // that see each other say the same.
  const bool swap = other.rank < one.rank;
  const CallOf& first = swap ? other : one;
  const CallOf& second = swap ? one : other;
  format_detail(reason, "rank {} called {}, rank {} called {}", first.rank,
                text_of(first.call).text, second.rank, text_of(second.call).text);
  return reason;
}

AbortReason fold_failed(const ShardConfig& config, std::uint64_t op_seq) noexcept {
  return {.code = AbortCode::kReduceFailed,
          .culprit_rank = config.rank,
          .reporter_rank = config.rank,
          .op_seq = op_seq};
}

}  // namespace gradwire::collective
