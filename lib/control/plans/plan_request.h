// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a join comes to before anybody is asked anything: the plan of the group's shards but for
/// its neighbors' MAC addresses and the time for its formation. The daemon and embedded ranks make
/// it here, so that both come to the same digest, tokens and paths. Any thread; allocates.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "control/formation/table.h"
#include "control/lanes/lane_control.h"

namespace gradwire::control {

/// @param own        this daemon's entry, as the user of the join gets it but for keys.
/// @param addresses  this daemon's own, with their ports.
/// @param keys       without an argument: the daemon has none.
/// @return an error that names the rank and the field that is wrong, or both ranks if nothing
/// connects this one with a neighbor.
[[nodiscard]] Result<PlanRequest> plan_request(const ipc::JoinBody& join, const ipc::RankInfo& own,
                                               std::span<const LocalAddress> addresses,
                                               const JoinKeys& keys = {});

/// The keys of a group whose mode is not off: `wanted` has them, and their tokens, from now on.
void put_keys(PlanRequest& wanted, std::shared_ptr<GroupKeys> keys);

}  // namespace gradwire::control
