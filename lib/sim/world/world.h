// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Hosts with production shards on a simulated network, in virtual time. A host stands for a
/// daemon: it receives into mbufs of its own pools, polls its shards as a lane does, hands frames
/// to a driver that may keep them, posts ops to every lane, and tells the lanes of one rank of an
/// abort on another. Who uses it says what clients do and what goes wrong, and is told what
/// happened.
///
/// Nothing here reads a clock; the same options, seed and calls give the same run. One thread.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "collective/data_runs.h"
#include "collective/shard.h"
#include "sim/random.h"
#include "sim/trace.h"
#include "sim/world/event_queue.h"
#include "sim/world/group_options.h"
#include "sim/world/network.h"
#include "sim/world/pool.h"
#include "sim/world/slow_backend.h"
#include "sim/world/world_keys.h"

namespace gradwire::sim {

/// A daemon's machine.
struct HostProfile {
  TimeNs clock_offset_ns = 0;
  std::int64_t clock_ppm = 0;         ///< how much faster its clock goes
  TimeNs round_ns = 2'000;            ///< from poll to poll while there is work
  TimeNs round_jitter_ns = 0;         ///< added to it by chance: no two hosts keep step
  TimeNs idle_ns = 5'000'000;         ///< the longest sleep between polls
  std::uint32_t rx_descriptors = 64;  ///< mbufs that the driver has in its receive ring
  /// So many mbufs lie in the ring ahead of frames, and others come with these: many hosts with
  /// deep rings would take too much memory. 0 = all.
  std::uint32_t rx_stock = 0;
  std::uint32_t tx_descriptors = 1024;  ///< sent frames that the driver may still hold
  TimeNs driver_holds_ns = 0;           ///< and for how long it does
  /// What its core takes for each packet sent, and for each received: one after the other.
  TimeNs packet_ns = 0;
  double port_behind = 0;  ///< polls in which the port takes next to nothing
  /// Chance that a lane stands still for a while, of several, and the others go on.
  double lane_lag = 0;
  double slow_backend = 0;  ///< chance per poll that a reduction finishes; 0 = at once
  // Of its daemon's configuration, what need not be the same everywhere; 0 = the group's.
  std::uint32_t window_packets = 0;
  std::uint32_t transit_packets = 0;
  std::uint32_t max_active_ops = 0;
};

struct WorldOptions {
  std::uint16_t hosts = 2;
  /// Ports of each host, each on a switch of its own. The network knows port `rail` of a host as
  /// host rail * hosts + host.
  std::uint8_t rails = 1;
  std::uint32_t ipv6_rails = 0;  ///< a bit for each rail that has IPv6 in place of IPv4
  /// Paths of equal cost between any two ports of a rail, which no host sees: a frame's addresses
  /// and its UDP source port choose one. The network knows a port's end of path `spine` as host
  /// spine * rails * hosts further on.
  std::uint8_t spines = 1;
  std::uint8_t source_ports = 1;  ///< that a rank may send to another from, on a lane
  std::uint64_t seed = 1;
  LinkProfile link{};
  PortProfile port{};
  HostProfile host{};
  /// mbufs of a host's pools; 0 = what its shards may need by design rule 3, and not one more.
  std::uint32_t packet_mbufs = 0;
  std::uint32_t control_mbufs = 0;
  std::uint32_t groups_per_host = 1;  ///< alive at once, for those sizes
  bool one_pool = false;              ///< for all hosts together: many hosts, few memory zones
  /// Bytes of payload on the wire for each byte held: time and queues see long packets.
  std::uint32_t payload_scale = 1;
  /// How likely somebody on the path who has no key adds a packet to one that is sealed: that one
  /// changed, with its token and a right CRC, or an older one unchanged.
  double forging = 0;
};

using GroupId = std::size_t;

/// What a client of a rank would see.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_formed(GroupId, std::uint16_t /*rank*/) {}
  /// Every lane is through with the op.
  virtual void on_done(GroupId, std::uint16_t /*rank*/, std::uint64_t /*op_seq*/) {}
  /// A receive of at most so many bytes gets so many. It comes before its end.
  virtual void on_transfer_sized(GroupId, std::uint16_t /*rank*/, std::uint64_t /*id*/,
                                 std::uint64_t /*bytes*/) {}
  virtual void on_transfer_done(GroupId, std::uint16_t /*rank*/, std::uint64_t /*id*/) {}
  /// The first lane aborted: what is posted from now on is refused.
  virtual void on_failed(GroupId, std::uint16_t /*rank*/, const AbortReason&) {}
  /// Every lane has aborted or closed: nothing refers to client memory any more.
  virtual void on_quiet(GroupId, std::uint16_t /*rank*/) {}
};

/// An end of a transfer on its way to the lanes.
struct WaitingTransfer {
  collective::TransferSpec spec;
  bool to_first = true;
  bool to_others = true;  ///< if its stream has others
};

/// One rank of one group, as its daemon sees it.
struct Rank {
  HostId host = 0;
  std::vector<std::unique_ptr<collective::Shard>>
      shards;                              ///< [lanes]; empty once its host has died
  std::vector<SlowBackend*> slow;          ///< [lanes] or empty; owned by the shards
  std::vector<std::uint64_t> lane_posted;  ///< [lanes] op_seq
  std::deque<collective::OpSpec> waiting;  ///< not taken by every lane yet
  std::deque<WaitingTransfer> transfers;   ///< not taken by the lanes yet
  std::map<std::uint64_t, collective::TransferSpec>
      unsized;  ///< by id: receives that other lanes wait for until the first knows their size
  std::vector<std::uint64_t> lane_transfers;             ///< [lanes] how many it has taken
  std::uint64_t transfers_taken = 0;                     ///< by every lane
  std::map<std::uint64_t, std::uint8_t> transfers_done;  ///< by id: lanes that are through with it
  std::vector<std::uint8_t> lanes_done;                  ///< [op_seq]
  std::uint8_t lanes_formed = 0;
  std::uint8_t lanes_quiet = 0;
  std::uint8_t lanes_closed = 0;
  std::uint32_t quiet_mask = 0;
  bool failed = false;
  AbortReason reason;
  TimeNs failed_at = 0;  ///< in the world's time
};

class World {
 public:
  World(const WorldOptions& options, Trace& trace, Observer& observer);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Groups.
  /// Makes the shards of every rank whose host lives. Throws where their configuration is refused.
  GroupId add_group(const GroupOptions& options);
  void start(GroupId group, std::uint16_t rank);
  /// Posts to every lane as soon as each takes it. Refused (false) once the rank failed.
  bool post(GroupId group, std::uint16_t rank, const collective::OpSpec& spec);
  /// Posts one end of a transfer to every lane. The pair's one before is done, or it is refused.
  bool post(GroupId group, std::uint16_t rank, const collective::TransferSpec& spec);
  void leave(GroupId group, std::uint16_t rank);
  void abort(GroupId group, std::uint16_t rank, const AbortReason& reason);
  /// Destroys the shards of a group, whatever their state.
  void remove_group(GroupId group);
  [[nodiscard]] const Rank& rank(GroupId group, std::uint16_t rank) const {
    return groups_[group].ranks[rank];
  }
  [[nodiscard]] std::uint16_t nranks(GroupId group) const {
    return static_cast<std::uint16_t>(groups_[group].ranks.size());
  }
  [[nodiscard]] bool formed(GroupId group, std::uint16_t rank) const;
  [[nodiscard]] bool done(GroupId group, std::uint16_t rank, std::uint64_t op_seq) const;
  [[nodiscard]] bool closed(GroupId group, std::uint16_t rank) const;

  // Faults.
  HostProfile& profile(HostId host) { return hosts_[host].profile; }
  void pause(HostId host, TimeNs until);
  void resume(HostId host);
  /// The daemon and its clients are gone; nothing is said to anybody.
  void crash(HostId host);
  /// A new daemon, of another incarnation, that knows nothing.
  void restart(HostId host);
  [[nodiscard]] bool alive(HostId host) const { return hosts_[host].alive; }
  /// Takes all but `left` of the free packet mbufs away; UINT32_MAX gives them back.
  void drought(HostId host, std::uint32_t left);
  [[nodiscard]] Network& network() { return network_; }
  /// What the network calls a host's port.
  [[nodiscard]] std::uint8_t family_of(std::uint8_t rail) const noexcept {
    return (options_.ipv6_rails >> rail & 1) != 0 ? 6 : 4;
  }
  [[nodiscard]] HostId port_of(HostId host, std::uint8_t rail, std::uint8_t spine = 0) const {
    return static_cast<HostId>((spine * options_.rails + rail) * options_.hosts + host);
  }
  /// The path that frames take from one port to another.
  [[nodiscard]] std::uint8_t spine_of(HostId from, HostId to, std::uint16_t source_port) const;
  /// Calls `action` at `time`; within a run everything that is not a packet or a poll is one.
  void at(TimeNs time, std::function<void()> action);

  // Time.
  [[nodiscard]] TimeNs now() const { return now_; }
  /// When the rank's host will be through with the packets of this round, if they take time.
  [[nodiscard]] TimeNs busy_until(GroupId group, std::uint16_t rank) const {
    return std::max(now_, hosts_[groups_[group].ranks[rank].host].busy_until);
  }
  /// Handles the next event. @return false if there is none.
  bool step();
  template <class Condition>
  bool run_until(Condition&& condition, TimeNs limit) {
    const TimeNs end = now_ + limit;
    while (!condition()) {
      if (events_.empty() || events_.next_time() > end) {
        now_ = std::max(now_, end);
        return condition();
      }
      step();
    }
    return true;
  }
  void run_for(TimeNs duration);

  // Accounts.
  [[nodiscard]] std::uint64_t counter(std::uint64_t collective::ShardCounters::*member) const;
  [[nodiscard]] std::uint64_t drops(wire::Drop drop) const;
  /// Packets that no shard wanted: of an old epoch, mostly.
  [[nodiscard]] std::uint64_t unknown_packets() const { return unknown_packets_; }
  [[nodiscard]] std::uint64_t receive_overruns() const { return receive_overruns_; }
  /// Frames whose bytes changed while a driver held them.
  [[nodiscard]] std::uint64_t frames_changed() const { return frames_changed_; }
  /// Pieces of ops by tiles that were made after the op had ended at their rank: from memory that
  /// is its client's again.
  [[nodiscard]] std::uint64_t late_pieces() const { return late_pieces_; }
  [[nodiscard]] const WorldKeys& keys() const { return keys_; }
  [[nodiscard]] std::uint64_t double_frees() const;
  /// Times that a pool had nothing left though nothing was taken away: rule 3 is broken.
  [[nodiscard]] std::uint64_t pool_failures() const;
  /// Destroys shards and frees what drivers and rings hold. @return mbufs that did not come back.
  std::uint32_t leaked_mbufs();
  /// Keeps up to `frames` copies of frames on the wire from now on, to be replayed.
  void record(std::size_t frames) { records_wanted_ = frames; }
  /// Puts the frames that were recorded on the wire again. @return how many.
  std::size_t replay();
  /// From now on what `loses` says yes to is lost on its way.
  using Loses = std::function<bool(HostId from, HostId to, wire::PacketType type)>;
  void lose(Loses loses) { loses_ = std::move(loses); }
  [[nodiscard]] std::uint64_t polls() const { return polls_; }
  /// How long the rank's first lane may sleep if nothing comes; 0 or less: it wants a round now.
  [[nodiscard]] TimeNs until_deadline(GroupId group, std::uint16_t rank) const;

 private:
  struct Received {
    rte_mbuf* mbuf;
    bool marked;
  };
  struct Held {
    TimeNs until;
    rte_mbuf* mbuf;
    std::uint64_t digest;
  };
  struct Place {
    GroupId group;
    std::uint16_t rank;
    std::uint8_t lane;
    collective::Shard* shard;
    TimeNs called_at = 0;  ///< by its host's clock: the last poll that called the shard
    bool touched = false;  ///< a packet has come for it since
  };
  struct Host {
    HostProfile profile;
    bool alive = true;
    bool paused = false;
    TimeNs paused_until = 0;
    TimeNs next_poll = kNever;
    TimeNs last_poll = 0;
    TimeNs busy_until = 0;  ///< see HostProfile::packet_ns
    TimeNs backoff_ns = 0;
    std::uint64_t incarnation = 0;
    Pool* packets = nullptr;
    Pool* control = nullptr;
    std::vector<rte_mbuf*> stock;  ///< the receive ring's empty mbufs
    std::deque<Received> rx;
    std::deque<Held> held;
    std::vector<Place> places;
    std::size_t first_place = 0;  ///< that has its turn in the next poll, modulo their number
    std::deque<std::pair<GroupId, std::uint16_t>> posting;  ///< ranks with ops that wait
  };
  struct Group {
    GroupOptions options;
    std::vector<Rank> ranks;
    std::shared_ptr<const ProcessLayout> layout;       ///< nullptr: every rank has as many members
    std::shared_ptr<const collective::Owners> owners;  ///< nullptr: all ranks
    std::shared_ptr<const collective::TileShares> tile_shares;
    std::shared_ptr<const collective::TileCosts> tile_costs;
  };
  struct Recorded {
    HostId from;
    HostId to;
    std::vector<std::byte> bytes;
  };

  // world.cc
  void make_pools(const GroupOptions& options);
  void make_rank(GroupId group, std::uint16_t rank);
  /// Paths from a host to another beside that by the lane's first rail.
  [[nodiscard]] std::vector<collective::LinkPath> other_paths(HostId from, HostId to,
                                                              std::uint8_t lane) const;
  void drop_rank(Rank& rank);
  void free_driver_memory(Host& host);
  void put_pools();

  /// Of packets between two ranks of the group.
  [[nodiscard]] WorldKeys::Ends ends_of(GroupId group, std::uint8_t lane, std::uint16_t from,
                                        std::uint16_t to) const;
  /// nullptr: the group's packets are not sealed.
  [[nodiscard]] std::shared_ptr<collective::Seals> make_seals(GroupId group, std::uint16_t rank,
                                                              std::uint8_t lane);
  /// Supplies the keys that a shard wishes for, later.
  void take_wishes(const Place& place);
  /// @param frame    what goes from one port to another, sealed or not
  /// @param headers  before its packet
  void forge(HostId from, HostId to, std::span<const std::byte> frame, std::size_t headers);

  // world_frames.cc
  void arrive(std::uint32_t flight_index);
  void refill(Host& host);
  /// @param rail  by which the lane sends it
  void transmit(Host& host, rte_mbuf* mbuf, std::uint16_t rail);
  /// Whether it was made while its op was under way.
  void look_at_piece(std::span<const std::byte> bytes);
  /// @param from, to  ports
  void put_on_wire(Host& host, HostId from, HostId to, std::span<const std::byte> frame,
                   std::uint32_t wire_bytes);
  void driver_done(Host& host);

  // world_run.cc
  [[nodiscard]] TimeNs local(const Host& host, TimeNs time) const noexcept;
  [[nodiscard]] TimeNs global(const Host& host, TimeNs local_time) const noexcept;
  void wake(Host& host, TimeNs time);
  void poll(Host& host);
  // lane_lag.cc
  /// A lane that stands still while others of its host go on.
  struct Lag {
    TimeNs until = 0;
    TimeNs next = 0;  ///< it may stand still again
    std::deque<Received> received;
    std::vector<std::function<void(collective::Shard&, TimeNs local_now)>> later;
  };
  [[nodiscard]] static bool rests(const Place& place, TimeNs local_now);  // lane_rest.cc
  [[nodiscard]] bool stands_still(const collective::Shard* lane) const;
  void let_lanes_lag(Host& host);
  /// Does it to each lane of a rank, when that goes on.
  void tell(Rank& rank, const std::function<void(collective::Shard&, TimeNs local_now)>& what);
  /// A frame that came for a lane that stands still.
  void keep(const collective::Shard* lane, const Received& received);
  void forget_lags(const Rank& rank);
  std::size_t receive_burst(Host& host, TimeNs local_now);
  void dispatch(Host& host, const Received& received, TimeNs local_now);
  /// The end of a burst. Before the next one a shard may end, and another lie in its place.
  void end_runs(TimeNs local_now) noexcept {
    runs_.end(local_now);
    runs_.forget();
  }
  void hand_over(collective::Shard& shard, const collective::PacketSource& from,
                 const wire::Packet& packet, std::uint8_t rail, const wire::FrameView& frame,
                 const Received& received, TimeNs local_now);
  void hand_over_sealed(collective::Shard& shard, collective::PacketSource from,
                        wire::Packet& packet, std::uint8_t rail, wire::FrameView& frame,
                        const Received& received, TimeNs local_now);
  bool poll_place(Host& host, const Place& place, TimeNs local_now, bool idle);
  void handle_event(const Place& place, const collective::Event& event);
  bool retry_posts(GroupId group, std::uint16_t rank);
  void post_transfers(Rank& rank);
  void line_up(GroupId group, std::uint16_t rank, const WaitingTransfer& transfer);
  void on_sized(const Place& place, const collective::Event& event);
  void schedule_next(Host& host, TimeNs local_now, bool worked);
  [[nodiscard]] HostId host_id(const Host& host) const {
    return static_cast<HostId>(&host - hosts_.data());
  }

  WorldOptions options_;
  Trace& trace_;
  Observer& observer_;
  Random random_;
  EventQueue events_;
  Network network_;
  WorldKeys keys_;
  std::array<std::vector<std::byte>, 16> seen_;  ///< frames that whoever forges has kept
  TimeNs now_ = 1'000'000'000;
  std::vector<Host> hosts_;
  std::deque<Group> groups_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<std::function<void()>> timers_;
  std::vector<std::uint32_t> free_timers_;
  std::vector<Recorded> recorded_;
  std::size_t records_wanted_ = 0;
  Loses loses_;
  std::map<const collective::Shard*, Lag> lags_;
  collective::DataRuns runs_;  ///< of the host that receives

  std::uint64_t polls_ = 0;
  std::uint64_t unknown_packets_ = 0;
  std::uint64_t receive_overruns_ = 0;
  std::uint64_t frames_changed_ = 0;
  std::uint64_t late_pieces_ = 0;
};

}  // namespace gradwire::sim
