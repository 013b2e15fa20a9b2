// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Makes a group's shards, one a lane: frame templates to both neighbors, the
/// lane's mempools, a reduce backend. The control thread owns it; it allocates.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/shard.h"
#include "command/messages.h"
#include "control/lanes/lane_control.h"
#include "control/lanes/lane_reports.h"
#include "lane/datapath.h"
#include "reduce/backend.h"

namespace gradwire::control {

struct PlanSettings {
  PlanSettings() : PlanSettings(TransportSection{}) {}
  explicit PlanSettings(const TransportSection& keys)
      : source_ports(static_cast<std::uint8_t>(keys.source_ports)),
        dscp(static_cast<std::uint8_t>(keys.dscp)),
        ecn(keys.ecn) {}

  collective::ShardConfig shard;  ///< the fields that are the same for every group
  std::uint16_t base_udp_port = 0;
  std::uint8_t source_ports = 0;  ///< from which a lane sends to a rank
  std::uint8_t dscp = 0;
  bool ecn = false;
};

class GpuLanes;

class PlanMaker {
 public:
  /// `datapath` and `gpu` outlive the maker and its plans.
  /// @param gpu  nullptr: the CPU reduces.
  PlanMaker(const PlanSettings& settings, lane::Datapath& datapath, GpuLanes* gpu = nullptr)
      : settings_(settings), datapath_(datapath), gpu_(gpu) {}

  /// Makes the plan of group `handle` with request.lanes shards; release it with destroy().
  [[nodiscard]] Result<command::GroupPlan*> create(std::uint64_t handle,
                                                   const PlanRequest& request);
  /// No lane may refer to the plan any more.
  void destroy(command::GroupPlan* plan) noexcept;
  /// The first bytes of that lane's packets to a neighbor, whose MAC address must be known.
  [[nodiscard]] Result<wire::FrameTemplate> frames_to(const NeighborPath& neighbor,
                                                      std::uint8_t lane) const;
  /// What is the same for every group.
  [[nodiscard]] const collective::ShardConfig& shard_settings() const noexcept {
    return settings_.shard;
  }
  /// The totals of all destroyed plans.
  [[nodiscard]] const std::vector<ReduceTotal>& totals() const noexcept { return totals_; }
  [[nodiscard]] const collective::ShardCounters& shard_totals(std::uint8_t lane) const noexcept {
    return shard_totals_[lane];
  }

 private:
  [[nodiscard]] Result<command::ShardPlacement> place(const PlanRequest& request,
                                                      const ProcessLayout* layout,
                                                      std::uint8_t lane);

  [[nodiscard]] Result<void> add_peers(collective::ShardConfig& config, const PlanRequest& request,
                                       std::uint8_t lane) const;
  [[nodiscard]] collective::SourcePorts sources_to(const NeighborPath& neighbor) const noexcept;
  /// How a lane's packets go to a rank by these paths, and come from it.
  [[nodiscard]] Result<collective::PeerAddress> address_of(std::span<const NeighborPath> paths,
                                                           const collective::LinkTokens& tokens,
                                                           std::uint8_t lane) const;
  /// Paths beside the lane's first, whose frames begin with `first`.
  [[nodiscard]] std::vector<collective::LinkPath> others(std::span<const NeighborPath> paths,
                                                         std::uint8_t lane,
                                                         const wire::FrameTemplate& first) const;
  [[nodiscard]] std::unique_ptr<reduce::Backend> make_backend(std::uint8_t lane) const;

  PlanSettings settings_;
  lane::Datapath& datapath_;
  GpuLanes* gpu_;
  std::vector<ReduceTotal> totals_;
  std::array<collective::ShardCounters, kMaxLanes> shard_totals_{};  ///< by lane
};

}  // namespace gradwire::control
