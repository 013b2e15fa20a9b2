// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// LaneReports of the real lanes and ports. The control thread owns it.
#pragma once

#include <functional>
#include <vector>

#include "control/lanes/datapath_lanes.h"
#include "control/lanes/lane_reports.h"
#include "lane/datapath.h"

namespace gradwire::control {

class DatapathReports final : public LaneReports {
 public:
  using LaneFacts = std::function<status::Lane(std::uint8_t lane)>;

  /// `datapath` and `lanes` outlive the object.
  /// @param facts  what the daemon knows of a lane's thread and core.
  DatapathReports(lane::Datapath& datapath, const DatapathLanes& lanes, LaneFacts facts)
      : datapath_(datapath), lanes_(lanes), facts_(std::move(facts)) {}

  [[nodiscard]] std::vector<command::PublishedStatus> published(std::uint8_t lane) const override {
    return datapath_.lane(lane).published();
  }
  [[nodiscard]] std::vector<command::PublishedStatus> published_busy(
      std::uint8_t lane) const override {
    return datapath_.lane(lane).published(lane::Lane::Which::kNotIdle);
  }
  [[nodiscard]] status::Lane lane_status(std::uint8_t lane) const override;
  [[nodiscard]] std::vector<status::Port> ports_status() const override;
  [[nodiscard]] std::vector<lane::TraceEvent> trace(std::uint8_t lane) const override {
    return datapath_.lane(lane).trace().read();
  }
  [[nodiscard]] std::vector<ReduceTotal> reduce_totals() const override {
    return lanes_.plans().totals();
  }
  [[nodiscard]] collective::ShardCounters shard_totals(std::uint8_t lane) const override {
    return lanes_.plans().shard_totals(lane);
  }
  [[nodiscard]] std::vector<PortFaults> port_faults() const override;
  [[nodiscard]] const port::FaultCounters& fault_counters(std::uint16_t port,
                                                          std::uint8_t lane) const override {
    return datapath_.lane(lane).fault_counters(port);
  }

 private:
  lane::Datapath& datapath_;
  const DatapathLanes& lanes_;
  LaneFacts facts_;
};

}  // namespace gradwire::control
