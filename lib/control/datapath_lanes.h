// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The control plane's view of the datapath (LaneControl) over the real lanes and ports:
/// messages through their rings, ARP on each port, plans with real shards. The control thread owns
/// it and calls poll() every round.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "control/lane_control.h"
#include "control/plan_maker.h"
#include "lane/datapath.h"
#include "port/neighbors.h"

namespace gradwire::control {

struct StaticNeighbor {
  wire::IpAddress ip;
  wire::MacAddress mac{};
};

class DatapathLanes final : public LaneControl {
 public:
  using LaneFacts = std::function<status::Lane(std::uint8_t lane)>;

  /// `datapath` and `gpu` outlive the object.
  /// @param gpu  nullptr: the CPU reduces.
  /// @param facts  what the daemon knows of a lane's thread and core, for the status.
  DatapathLanes(lane::Datapath& datapath, const PlanSettings& settings,
                std::span<const StaticNeighbor> neighbors, LaneFacts facts,
                GpuLanes* gpu = nullptr);

  /// Carries ARP between ports and neighbours, and looks after the ports' links.
  void poll(TimeNs now);

  [[nodiscard]] std::uint8_t lanes() const override { return datapath_.lanes(); }
  [[nodiscard]] std::span<const LocalAddress> addresses() const override { return addresses_; }
  [[nodiscard]] bool send(std::uint8_t lane, command::Request* request) override {
    return datapath_.send(lane, request);
  }
  [[nodiscard]] bool next_notice(command::Notice& out) override { return datapath_.receive(out); }
  [[nodiscard]] Resolution resolve(std::uint16_t port, const wire::IpAddress& ip) override;
  [[nodiscard]] Result<command::GroupPlan*> create_plan(const PlanRequest& request) override;
  void destroy_plan(command::GroupPlan* plan) override;
  /// As the lane published it last.
  [[nodiscard]] collective::ShardStatus shard_status(const command::GroupPlan& plan,
                                                     std::uint8_t lane, TimeNs now) const override;
  [[nodiscard]] bool registers_memory() const override {
    return gpu_ != nullptr && !makes_memory_on_gpu();
  }
  [[nodiscard]] Result<void> register_memory(std::byte* address, std::uint64_t bytes) override;
  void unregister_memory(std::byte* address) override;
  [[nodiscard]] bool makes_memory_on_gpu() const override;
  [[nodiscard]] Result<reduce::SharedGpuMemory> allocate_on_gpu(std::uint64_t bytes) override;
  void free_on_gpu(std::byte* address) override;
  [[nodiscard]] Result<reduce::SharedReadyEvent> make_ready_event() override;
  [[nodiscard]] std::vector<ReduceTotal> reduce_totals() const override {
    return plan_maker_.totals();
  }
  [[nodiscard]] collective::ShardCounters shard_totals(std::uint8_t lane) const override {
    return plan_maker_.shard_totals(lane);
  }
  [[nodiscard]] std::vector<lane::TraceEvent> trace(std::uint8_t lane) const override {
    return datapath_.lane(lane).trace().read();
  }
  [[nodiscard]] std::vector<command::PublishedStatus> published(std::uint8_t lane) const override {
    return datapath_.lane(lane).published();
  }
  [[nodiscard]] std::vector<status::Port> ports_status() const override;
  [[nodiscard]] status::Lane lane_status(std::uint8_t lane) const override;
  [[nodiscard]] const std::vector<PortFaults>& port_faults() const override { return port_faults_; }
  void note_faults(std::uint16_t port, const FaultSettings& faults) override {
    port_faults_.at(port).faults = faults;
  }
  [[nodiscard]] const port::FaultCounters* fault_counters(std::uint16_t port,
                                                          std::uint8_t lane) const override {
    return &datapath_.lane(lane).fault_counters(port);
  }

 private:
  void carry_frames();
  /// Full packets to it pass the kernel.
  [[nodiscard]] Result<void> check_path(const NeighbourPath& path,
                                        std::uint32_t payload_bytes) const;
  void tend_links();

  /// One that a plan's group sends to.
  struct HeldNeighbor {
    std::uint16_t port = 0;
    wire::IpAddress ip;
  };

  lane::Datapath& datapath_;
  LaneFacts facts_;
  GpuLanes* gpu_;
  PlanMaker plan_maker_;
  std::vector<LocalAddress> addresses_;
  std::vector<PortFaults> port_faults_;
  std::vector<port::Neighbors> neighbors_;  ///< by port
  std::multimap<const command::GroupPlan*, HeldNeighbor> held_;
  std::vector<bool> link_up_;  ///< by port, as seen last
  TimeNs next_link_look_ = 0;
  TimeNs now_ = 0;
};

}  // namespace gradwire::control
