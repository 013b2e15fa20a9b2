// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What goes wrong with several paths between hosts, for the profile `rails`. Any thread; it
/// allocates.
#pragma once

#include "sim/random.h"
#include "sim/scenario.h"

namespace gradwire::sim {

/// Rails that fail in turn; between any two hosts one is whole at any time. Ops last longer than
/// rails live.
void draw_rails(Scenario& s, Random& random);

}  // namespace gradwire::sim
