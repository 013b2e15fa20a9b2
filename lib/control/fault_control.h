// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Faults that ports inject on purpose: set through the control socket, shown in the status, and
/// always logged as a warning. The control thread owns it; it allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "control/lanes/lane_reports.h"
#include "control/lanes/lane_requests.h"
#include "control/options.h"
#include "control/replies.h"
#include "status/daemon_status.h"

namespace gradwire::control {

class FaultControl {
 public:
  /// All of them outlive it.
  FaultControl(const ManagerOptions& options, std::uint8_t lanes, const LaneReports& reports,
               LaneRequests& requests, Replies& replies);

  /// @param to  of a peer that may operate the daemon.
  void inject(const PendingReply& to, std::span<const std::byte> body);
  [[nodiscard]] std::vector<status::Faults> status() const;

 private:
  void set(std::uint16_t port, const FaultSettings& faults);

  const ManagerOptions& options_;
  const std::uint8_t lanes_;
  const LaneReports& reports_;
  LaneRequests& requests_;
  Replies& replies_;
  std::vector<PortFaults> ports_;
};

}  // namespace gradwire::control
