// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// In which order this rank tells ranks without members of ops, whatever tells of them: parts of an
/// op in two steps, or the call of one by tiles. Each of these says how many ops ago the one before
/// was of which the same rank was told (wire::DataHeader::since), so that ops are posted there in
/// their order. One lane owns it; it allocates at construction only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/require.h"
#include "collective/shard_config.h"

namespace gradwire::collective {

class ToldOrder {
 public:
  /// A rank without members tells nobody.
  explicit ToldOrder(const ShardConfig& config)
      : nranks_(config.nranks), last_(config.folds_only() ? 0u : config.folding_ranks) {}

  /// The rank, which has no members, is to be told of the op that is posted now.
  /// @return what that says: 0 if it is too long ago.
  std::uint8_t tell(std::uint16_t rank, std::uint64_t op_seq) noexcept {
    const std::size_t index = static_cast<std::size_t>(rank) - nranks_;
    require(rank >= nranks_ && index < last_.size(), "a rank is told that has no members");
    std::uint64_t& last = last_[index];
    require(op_seq > last, "a rank is told of ops in their order, and once of each");
    const std::uint64_t ago = op_seq - last;
    last = op_seq;
    return static_cast<std::uint8_t>(ago > UINT8_MAX ? 0 : ago);
  }

 private:
  std::uint16_t nranks_;
  std::vector<std::uint64_t> last_;  ///< by rank: the last op of which it was told
};

}  // namespace gradwire::collective
