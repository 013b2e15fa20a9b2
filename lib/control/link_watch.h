// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether the packets of living groups still go where their neighbours are. What lanes say of
/// acknowledgements confirms a neighbour or puts it under suspicion; if it is found at another MAC
/// address, lanes are told so, and the group goes on. The control thread owns it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "command/messages.h"
#include "control/lane_control.h"
#include "control/plan_maker.h"
#include "lane/datapath.h"
#include "port/neighbors.h"

namespace gradwire::control {

/// Of the neighbours that groups use: so short that one which moved is found well before the
/// group's silence limit.
void set_times(port::NeighborsConfig& config, const collective::ShardTimeouts& timeouts) noexcept;

/// @return whom the port sends frames for `ip` to; nothing if no route leads there.
[[nodiscard]] std::optional<wire::IpAddress> hop_to(const port::Port& port,
                                                    const wire::IpAddress& ip);

class LinkWatch {
 public:
  /// All outlive the object. `neighbors` is by port.
  LinkWatch(lane::Datapath& datapath, const PlanMaker& plans,
            std::vector<port::Neighbors>& neighbors) noexcept
      : datapath_(datapath), plans_(plans), neighbors_(neighbors) {}

  /// Holds the plan's neighbours until remove().
  void add(const command::GroupPlan* plan, const PlanRequest& request);
  void remove(const command::GroupPlan* plan);
  void poll(TimeNs now);
  /// @return whether it is about a request of its own.
  [[nodiscard]] bool take(const command::Notice& notice);

 private:
  /// A lane's packets to one rank.
  struct WatchedLink {
    std::uint8_t lane = 0;
    bool is_acked = false;  ///< data goes there, so acknowledgements come from there
    NeighbourPath path;     ///< with the MAC address that the lane's frames have
    bool held = false;
    bool being_moved = false;
    std::uint64_t acks = 0;  ///< as the lane said last
    TimeNs acked_ns = 0;     ///< when that changed
  };
  using Links = std::vector<WatchedLink>;
  struct Move {
    std::unique_ptr<command::Request> request;
    const command::GroupPlan* plan = nullptr;  ///< nullptr: gone
    std::size_t link = 0;
    wire::MacAddress mac{};
  };

  void look(TimeNs now);
  void look_at(WatchedLink& link, const collective::ShardStatus& status, TimeNs now);
  void move_links();
  void move_link(const command::GroupPlan& plan, Links& links, std::size_t index,
                 const wire::MacAddress& mac);
  [[nodiscard]] std::uint64_t moved() const noexcept;

  lane::Datapath& datapath_;
  const PlanMaker& plans_;
  std::vector<port::Neighbors>& neighbors_;
  std::map<const command::GroupPlan*, Links> links_;
  std::unordered_map<const command::Request*, Move> moves_;
  std::uint64_t moved_ = 0;
  TimeNs next_look_ = 0;
};

}  // namespace gradwire::control
