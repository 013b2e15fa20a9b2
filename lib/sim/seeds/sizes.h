// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How large things are in a scenario: members, lanes, payloads, windows, ops. Mostly small, where
/// every packet is a corner case, and in some seeds anything that the configuration allows, as far
/// as a seed's memory and time go. Any thread; the scenario's vectors allocate.
#pragma once

#include <cstdint>

#include "sim/random.h"
#include "sim/seeds/scenario.h"

namespace gradwire::sim {

/// Of a seed's mempools together, twice as much in one seed of 16; beyond it windows, lanes and
/// payloads are halved.
inline constexpr std::uint64_t kPoolBytesMax = 64u << 20;

void draw_sizes(Scenario& scenario, Random& random);
/// In some seeds ranks differ in members, and processes are numbered in any order. Drawn apart, so
/// that all else of a seed stays as it is without; draw_sizes() comes first.
void draw_layout(Scenario& scenario);
/// Whether packets are sealed, in which mode, and how long a key lasts. Drawn apart.
void draw_security(Scenario& scenario);
/// Which hosts sum ops in two steps, if not all do; whether there are such ops is known. Drawn
/// apart, so that a seed in which all do stays as it was before there were others.
void draw_owners(Scenario& scenario);
/// Sometimes ranks that have no members, and faults of theirs. Drawn apart, when all else is.
void draw_folding_ranks(Scenario& scenario);
/// Some ops go by tiles then, and others by the ring. Drawn apart.
void draw_tile_model(Scenario& scenario);
/// Elements, types and order of the ops; draw_sizes() and draw_layout() come first.
void draw_plans(Scenario& scenario, Random& random);
/// Formats of some of the sums, in some seeds of profile tiles. Drawn apart, when all else is; how
/// large a payload is for them, before.
void draw_payload_for_formats(Scenario& scenario);
void draw_formats(Scenario& scenario);
/// What profile crowd has that others have not; draw_transfers() calls it.
void crowd(Scenario& scenario);
/// What profile lanes has: after draw_hosts().
void lag_lanes(Scenario& scenario);
/// What some ranks call otherwise, in profile calls: after all else.
void draw_odd_calls(Scenario& scenario);
/// Makes `other`, a copy, a group of another user on some of the same hosts, in another order.
void place_neighbor(Scenario& other, Random& random);
/// Transfers between processes; network, hosts and sizes come first, ops may come later.
void draw_transfers(Scenario& scenario);
/// What only ops have goes, after all else is drawn: for profile pairs.
void leave_transfers_alone(Scenario& scenario);
/// Halves what takes the most until the mempools fit.
void fit_pools(Scenario& scenario);
/// Bytes of the mempools that a world makes for the scenario.
[[nodiscard]] std::uint64_t pool_bytes(const Scenario& scenario) noexcept;

}  // namespace gradwire::sim
