// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Makes the status of the daemon, and its trace. The status answers first of all who waits for
/// whom, and since when. The control thread calls it; it allocates, and changes nothing.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "control/clients/client_table.h"
#include "control/drain.h"
#include "control/fault_control.h"
#include "control/groups/group_table.h"
#include "control/keys/daemon_keys.h"
#include "control/lanes/lane_control.h"
#include "control/lanes/lane_reports.h"
#include "control/lanes/lane_requests.h"
#include "control/lanes/published.h"
#include "control/options.h"
#include "control/stopping.h"
#include "status/daemon_status.h"

namespace gradwire::control {

class StatusMaker {
 public:
  /// What it tells of; all of it outlives the status maker.
  struct Sources {
    const ManagerOptions& options;
    const LaneControl& lanes;
    const LaneReports& reports;
    const ClientTable& clients;
    const GroupTable& groups;
    const LaneRequests& requests;
    const FaultControl& faults;
    const Drain& drain;
    const Stopping& stopping;
    const DaemonKeys& keys;
  };
  /// @param started  when the daemon did.
  StatusMaker(const Sources& sources, TimeNs started) : from_(sources), started_(started) {}

  /// The whole status. For groups of other users it hides from `viewer` what identifies them on the
  /// wire; root and the daemon's own user see everything.
  [[nodiscard]] status::DaemonStatus make(TimeNs now, uid_t viewer) const;
  /// As control::prepare_trace(): the last events of ops, for the same viewer.
  [[nodiscard]] std::function<nlohmann::json()> prepare_trace(TimeNs now, uid_t viewer) const;

 private:
  [[nodiscard]] status::Lane lane_status(std::uint8_t lane, const Published& published) const;
  [[nodiscard]] status::Daemon daemon_status(std::span<const status::Port> ports, TimeNs now) const;
  [[nodiscard]] status::Group group_status(const Group& group, const Published& published,
                                           TimeNs now) const;
  [[nodiscard]] std::vector<std::string> waits_of(const Group& group, const Published& published,
                                                  TimeNs now) const;

  const Sources from_;
  const TimeNs started_;
};

}  // namespace gradwire::control
