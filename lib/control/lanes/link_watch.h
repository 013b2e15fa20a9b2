// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Checks whether packets of living groups still go to their neighbors' MAC addresses.
/// Acknowledgements that lanes report confirm a neighbor; if they stay away, it is looked up
/// again, and if it has another MAC address, lanes are told and the group goes on. Of several paths
/// to a neighbor each is watched, and the log says if a lane leaves its first one, and if it is
/// back. The control thread owns it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "command/messages.h"
#include "control/lanes/lane_control.h"
#include "control/plans/plan_maker.h"
#include "lane/datapath.h"
#include "port/neighbors/neighbors.h"

namespace gradwire::control {

/// Sets times for neighbors that groups use: short enough to find one that moved well before the
/// group's silence limit.
void set_times(port::NeighborsConfig& config, const collective::ShardTimeouts& timeouts) noexcept;

/// @return the next hop of frames for `ip`; nothing if no route leads there.
[[nodiscard]] std::optional<wire::IpAddress> hop_to(const port::Port& port,
                                                    const wire::IpAddress& ip);

class LinkWatch {
 public:
  /// All outlive the object. `neighbors` is by port.
  LinkWatch(lane::Datapath& datapath, const PlanMaker& plans,
            std::vector<port::Neighbors>& neighbors) noexcept
      : datapath_(datapath), plans_(plans), neighbors_(neighbors) {}

  /// Holds the plan's neighbors until remove().
  void add(const command::GroupPlan* plan, const PlanRequest& request);
  void remove(const command::GroupPlan* plan);
  void poll(TimeNs now);
  /// @return whether the notice answers a request of this object.
  [[nodiscard]] bool take(const command::Notice& notice);

 private:
  /// A lane's packets to one rank.
  struct WatchedLink {
    std::uint8_t lane = 0;
    bool is_first = false;  ///< of the lane's paths to that rank
    bool is_acked = false;  ///< data is sent to that rank, so it sends acknowledgements
    NeighborPath path;      ///< with the MAC address that the lane's frames have
    bool held = false;
    bool being_moved = false;
    std::uint64_t acks = 0;       ///< as the lane said last; for a link that is not acked: new data
    std::uint64_t repeated = 0;   ///< data that came again, when the last new data came
    std::uint64_t confirmed = 0;  ///< `acks` at the last confirmation
    TimeNs news_ns = 0;           ///< when `acks` changed; 0 = nothing is expected
    bool silent = false;
    bool in_use = false;            ///< of several paths to that rank the one that the lane takes
    bool left = false;              ///< of several paths the lane's first, which it does not take
    std::uint16_t source_port = 0;  ///< from which the lane sends there; 0: not seen yet
    TimeNs source_port_said = 0;    ///< when the log told of another one
  };
  using Links = std::vector<WatchedLink>;
  static constexpr std::size_t kNoLink = SIZE_MAX;
  struct Move {
    std::unique_ptr<command::Request> request;
    const command::GroupPlan* plan = nullptr;  ///< nullptr: removed
    std::size_t link = 0;
    wire::MacAddress mac{};
  };

  static void add_paths(Links& links, std::span<const NeighborPath> paths, std::uint8_t lane,
                        bool is_acked);
  void look(TimeNs now);
  /// Ranks off the ring that do not answer.
  void look_off_ring(const command::GroupPlan* plan, const collective::ShardStatus& status,
                     TimeNs now);
  struct SilentRank {
    std::uint16_t rank = 0;
    TimeNs for_ns = 0;
    std::uint32_t unanswered = 0;
    wire::IpAddress ip;  ///< by the path that the lane takes
  };
  void look_for(const command::GroupPlan* plan, const SilentRank& silent, TimeNs now);
  void move_peers();
  [[nodiscard]] bool send_move(const command::GroupPlan& plan, std::uint8_t lane, std::size_t link,
                               const NeighborPath& path, const wire::MacAddress& mac);
  void look_at(WatchedLink& link, const collective::ShardStatus& status, TimeNs now);
  void look_at_acks(WatchedLink& link, const collective::ShardCounters& counters, TimeNs now);
  void look_at_data(WatchedLink& link, const collective::ShardCounters& counters, TimeNs now);
  /// Logs that a lane left its first path, or is back.
  void note_path(const command::GroupPlan& plan, WatchedLink& link,
                 const collective::ShardStatus& status, TimeNs now) const;
  /// Logs that a lane took another source port, not too often.
  static void note_source_port(const command::GroupPlan& plan, WatchedLink& link,
                               const collective::ShardStatus& status, TimeNs now);
  void move_links();
  void move_link(const command::GroupPlan& plan, Links& links, std::size_t index,
                 const wire::MacAddress& mac);
  [[nodiscard]] std::uint64_t moved() const noexcept;

  lane::Datapath& datapath_;
  const PlanMaker& plans_;
  std::vector<port::Neighbors>& neighbors_;
  std::map<const command::GroupPlan*, Links> links_;
  std::unordered_map<std::uint64_t, const command::GroupPlan*> by_handle_;
  /// Ranks that are no neighbors on the ring, with the MAC addresses that the lanes' frames have.
  /// They are not held: a thousand of them would be probed all the time.
  std::map<const command::GroupPlan*, std::vector<PeerPaths>> peers_;
  bool peers_asked_ = false;  ///< one of them may answer from another MAC address
  std::unordered_map<const command::Request*, Move> moves_;
  std::uint64_t moved_ = 0;
  TimeNs next_look_ = 0;
};

}  // namespace gradwire::control
