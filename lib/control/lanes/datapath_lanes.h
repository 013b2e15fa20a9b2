// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// LaneControl over the real lanes and ports: messages through their rings, ARP on each port, plans
/// with real shards. The control thread owns it and calls poll() every round.
#pragma once

#include <span>
#include <vector>

#include "control/lanes/lane_control.h"
#include "control/lanes/link_watch.h"
#include "control/plans/plan_maker.h"
#include "lane/datapath.h"
#include "port/neighbors/neighbors.h"

namespace gradwire::control {

struct StaticNeighbor {
  wire::IpAddress ip;
  wire::MacAddress mac{};
};

/// RankInfo::source_ports of a daemon.
[[nodiscard]] std::uint16_t source_ports_of(lane::Datapath& datapath);

class DatapathLanes final : public LaneControl {
 public:
  /// `datapath` and `gpu` outlive the object.
  /// @param gpu  nullptr: the CPU reduces.
  DatapathLanes(lane::Datapath& datapath, const PlanSettings& settings,
                std::span<const StaticNeighbor> neighbors, GpuLanes* gpu = nullptr);

  /// Carries ARP and neighbor discovery between ports and neighbors, and looks after the ports'
  /// links.
  void poll(TimeNs now);

  [[nodiscard]] std::uint8_t lanes() const override { return datapath_.lanes(); }
  [[nodiscard]] std::span<const LocalAddress> addresses() const override { return addresses_; }
  [[nodiscard]] bool send(std::uint8_t lane, command::Request* request) override {
    return datapath_.send(lane, request);
  }
  [[nodiscard]] bool next_notice(command::Notice& out) override;
  [[nodiscard]] Resolution resolve(std::uint16_t port, const wire::IpAddress& ip,
                                   Asking asking) override;
  [[nodiscard]] std::optional<wire::MacAddress> mac_of(std::uint16_t port,
                                                       const wire::IpAddress& ip) const override;
  [[nodiscard]] std::optional<port::TooBig> too_big(std::uint16_t port,
                                                    const wire::IpAddress& ip) const override {
    return too_big_[port].find(ip);
  }
  [[nodiscard]] Result<command::GroupPlan*> create_plan(std::uint64_t handle,
                                                        const PlanRequest& request) override;
  void destroy_plan(command::GroupPlan* plan) override;

  /// Used by DatapathReports.
  [[nodiscard]] const PlanMaker& plans() const noexcept { return plan_maker_; }
  [[nodiscard]] const port::Neighbors& neighbors(std::size_t port) const noexcept {
    return neighbors_[port];
  }

 private:
  void carry_frames();
  /// Checks that the kernel sends full packets to the neighbor.
  /// @param payload_bytes  of a full packet, with its tag if packets are sealed.
  [[nodiscard]] Result<void> check_path(const NeighborPath& path,
                                        std::uint32_t payload_bytes) const;
  void tend_links();
  void tell(const port::Port& port, const port::NeighborEvent& event) const;
  void tell_too_big();

  lane::Datapath& datapath_;
  PlanMaker plan_maker_;
  std::vector<LocalAddress> addresses_;
  std::vector<port::Neighbors> neighbors_;              ///< by port
  std::vector<port::TooBigTable> too_big_;              ///< by port
  std::vector<port::ReplyLimit> in_turn_;               ///< by port: questions of Asking::kInTurn
  std::vector<std::optional<std::size_t>> unanswered_;  ///< by port: questions, in this round
  LinkWatch watch_;
  std::vector<bool> link_up_;  ///< by port; the last known state
  struct Untold {
    const port::Port* port = nullptr;
    port::TooBig message;
  };
  std::optional<Untold> untold_;  ///< the last news of a packet that is too big
  TimeNs next_too_big_ = 0;       ///< the next that is said
  TimeNs next_link_look_ = 0;
  TimeNs now_ = 0;
};

}  // namespace gradwire::control
