// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A rank without members: no client posts there. Ops are told of by what others contribute to
/// them, or by their calls of ops by tiles. One lane owns it; it allocates at construction only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/direct/direct.h"
#include "collective/membership/group.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "collective/shard_services.h"
#include "collective/tiles/told_calls.h"
#include "wire/packet.h"

namespace gradwire::collective {

class ToldOps {
 public:
  /// All of them outlive it.
  ToldOps(const ShardConfig& config, const Group& group, Direct& direct, OpTable& ops,
          ShardServices& services)
      : config_(config),
        group_(group),
        direct_(direct),
        ops_(ops),
        services_(services),
        told_by_(OpTable::kDescriptorsKept) {}

  /// A rank has called an op by tiles. If it is posted here, that is nothing new.
  void hear(std::uint16_t rank, const wire::TileHeader& call, TimeNs now) noexcept;
  /// Posts what others have told of, as far as there is room. Ops that are posted already have all
  /// that came for them.
  void post(TimeNs now) noexcept;
  /// Who told of an op that is not forgotten.
  [[nodiscard]] std::uint16_t by(std::uint64_t op_seq) const noexcept {
    return told_by_[op_seq % told_by_.size()];
  }
  /// Whether it is an op that was taken for one which has nothing for this rank.
  [[nodiscard]] bool was_skipped(std::uint64_t op_seq) const noexcept;
  /// A contribution or a call names such an op.
  void report_skipped(std::uint16_t rank, std::uint64_t op_seq, const OpCall& theirs,
                      TimeNs now) noexcept;

 private:
  /// What tells of the next op that is to be posted here.
  [[nodiscard]] std::optional<ToldCall> next() const noexcept;
  void refuse(std::uint16_t rank, const OpSpec& spec, PostResult why, TimeNs now) noexcept;

  const ShardConfig& config_;
  const Group& group_;
  Direct& direct_;
  OpTable& ops_;
  ShardServices& services_;
  ToldCalls calls_;
  std::vector<std::uint16_t> told_by_;  ///< by op_seq
};

}  // namespace gradwire::collective
