// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a daemon is configured with, as plain data: the sections of base/sections.h. load.h fills
/// it from TOML and from flags. Control thread; strings and vectors allocate.
#pragma once

#include <vector>

#include "base/sections.h"

namespace gradwire::config {

using gradwire::DaemonSection;
using gradwire::FaultsSection;
using gradwire::GpuSection;
using gradwire::kAuto;
using gradwire::LanesSection;
using gradwire::LimitsSection;
using gradwire::NeighborSection;
using gradwire::PortSection;
using gradwire::RouteSection;
using gradwire::SecuritySection;
using gradwire::TimeoutsSection;
using gradwire::TransportSection;

struct DaemonConfig {
  DaemonSection daemon;
  std::vector<PortSection> ports;
  std::vector<RouteSection> routes;
  std::vector<NeighborSection> neighbors;
  LanesSection lanes;
  TransportSection transport;
  TimeoutsSection timeouts;
  LimitsSection limits;
  GpuSection gpu;
  SecuritySection security;
  FaultsSection faults;
  friend bool operator==(const DaemonConfig&, const DaemonConfig&) = default;
};

}  // namespace gradwire::config
