// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the status, the trace and fault injection read from lanes and ports. Nothing here changes
/// anything. Only the control thread calls it, and no call blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fault_settings.h"
#include "collective/shard.h"
#include "command/messages.h"
#include "lane/trace_ring.h"
#include "port/fault_stage.h"
#include "reduce/backend.h"
#include "status/daemon_status.h"

namespace gradwire::control {

/// What shards reduced, by backend ("cpu avx2", "emu", "cuda") and path.
struct ReduceTotal {
  std::string backend;
  std::string path;
  reduce::BackendCounters counters;
};
/// Adds to the total of that backend and path.
void add_to(std::vector<ReduceTotal>& totals, const char* backend, const char* path,
            const reduce::BackendCounters& counters);

/// A port's settings for fault injection.
struct PortFaults {
  std::string device;
  FaultSettings faults;         ///< as configured, or as last set
  bool splits_payload = false;  ///< payloads lie in a GPU's memory
};

class LaneReports {
 public:
  virtual ~LaneReports() = default;

  /// What the lane last published about all its groups, as one snapshot.
  [[nodiscard]] virtual std::vector<command::PublishedStatus> published(
      std::uint8_t lane) const = 0;
  /// As published(), but not of all groups for transfers alone that have none under way: there may
  /// be a thousand, and each costs time.
  [[nodiscard]] virtual std::vector<command::PublishedStatus> published_busy(
      std::uint8_t lane) const {
    return published(lane);
  }
  /// What the lane reports of itself: core, polling, ports, counters.
  [[nodiscard]] virtual status::Lane lane_status(std::uint8_t lane) const = 0;
  /// Each port: what it is, and what its driver counts.
  [[nodiscard]] virtual std::vector<status::Port> ports_status() const = 0;
  /// The lane's last events of ops, oldest first.
  [[nodiscard]] virtual std::vector<lane::TraceEvent> trace(std::uint8_t lane) const = 0;

  /// What ended groups reduced, by backend and path.
  [[nodiscard]] virtual std::vector<ReduceTotal> reduce_totals() const = 0;
  /// The counters of ended groups' shards on the lane.
  [[nodiscard]] virtual collective::ShardCounters shard_totals(std::uint8_t lane) const = 0;

  /// By port, as configured.
  [[nodiscard]] virtual std::vector<PortFaults> port_faults() const = 0;
  [[nodiscard]] virtual const port::FaultCounters& fault_counters(std::uint16_t port,
                                                                  std::uint8_t lane) const = 0;
};

}  // namespace gradwire::control
