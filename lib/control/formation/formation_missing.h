// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a group that does not form waits for, for its error and the status. Pure; the control
/// thread calls it.
#pragma once

#include <cstdint>
#include <string>

#include "control/lanes/lane_control.h"
#include "control/lanes/published.h"
#include "control/state.h"

namespace gradwire::control {

/// The rank that formation waits for: a neighbor that has not been heard, or else this one.
[[nodiscard]] std::uint16_t late_rank(const Group& group, const Published& published);
[[nodiscard]] std::string what_is_missing(const Group& group, const Published& published,
                                          const LaneControl& lanes);
/// If a small op's packets, which come from all ranks at about the same time, may not all find a
/// place in the receive ring of a port: which, and what to set. Else empty.
[[nodiscard]] std::string short_receive_ring(const Group& group, const LaneControl& lanes);

}  // namespace gradwire::control
