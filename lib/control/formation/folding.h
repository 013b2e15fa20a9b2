// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Ranks without members, in a join and in the plan that it comes to: the last ranks of a table.
/// Any thread; it allocates.
#pragma once

#include <span>

#include "base/result.h"
#include "control/lanes/lane_control.h"
#include "ipc/join_message.h"

namespace gradwire::control {

/// How many clients join at this rank.
[[nodiscard]] inline std::size_t clients_of(const ipc::JoinRequest& request) noexcept {
  return request.folds_only() ? 1 : request.member_count;
}
/// Whether there may be so many, at these daemons, and this client may be one of theirs.
[[nodiscard]] Result<void> check_folding_ranks(const ipc::JoinBody& join);
/// Whether the group has anything for them to do; `wanted` knows its shapes.
[[nodiscard]] Result<void> check_folding_work(const PlanRequest& wanted,
                                              std::span<const ipc::RankInfo> table);
/// The plan of one, of whose peers the rank on which it hangs becomes its only link.
[[nodiscard]] Result<void> hang(PlanRequest& wanted);

}  // namespace gradwire::control
