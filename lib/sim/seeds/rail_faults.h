// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What goes wrong with several paths between hosts, for the profiles `rails`, `fabric` and
/// `pairs`. Any thread; it allocates.
#pragma once

#include "sim/random.h"
#include "sim/seeds/scenario.h"

namespace gradwire::sim {

/// How many rails and paths there are, for other profiles one, and source ports: one or many.
void draw_paths(Scenario& s, Random& random);

/// Rails that fail in turn; between any two hosts one is whole at any time. Or paths of equal cost
/// that do, each way for itself, of which half are whole. Ops last longer than rails live.
void draw_rails(Scenario& s, Random& random);

}  // namespace gradwire::sim
