// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One lane: its queue on each port, its shards, and the loop that joins them. Each round takes
/// what the control thread and the command lane sent, receives a burst from each port, gives
/// packets to their shards, lets every shard send, and passes on what happened. Lane 0 is also the
/// command lane.
///
/// The control thread constructs it; then one lcore (or the caller, in embedded mode) runs it.
/// poll_once() allocates nothing, but for control requests (a new client, memory or group).
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/sip_hash.h"
#include "command/links.h"
#include "command/messages.h"
#include "lane/command_port.h"
#include "lane/counters.h"
#include "lane/group_index.h"
#include "lane/notices.h"
#include "lane/polling.h"
#include "lane/port_share.h"
#include "lane/sleeper.h"
#include "lane/snapshot.h"
#include "lane/trace_ring.h"
#include "lane/tx_queue.h"
#include "lane/tx_trace.h"
#include "port/fault_stage.h"
#include "port/payload_pool.h"
#include "port/port.h"
#include "port/reply_limit.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::lane {

struct LaneConfig {
  std::uint8_t lane = 0;
  std::uint8_t lanes = 1;                       ///< of the datapath: they divide each port's rate
  std::uint16_t udp_port = 0;                   ///< of this lane: the daemon's base port + lane
  std::vector<const port::Port*> ports;         ///< started; queue `lane` of each is this lane's
  const port::PayloadPool* payloads = nullptr;  ///< where ports split payloads off
  command::LaneRings rings;
  command::SharedRings shared;
  SipHashKey hash_secret;     ///< random, so that no stranger knows what collides
  bool command_lane = false;  ///< takes the clients' commands: lane 0 of a daemon
  std::vector<command::LaneRings>
      all_lanes;  ///< command lane only: every lane's rings, to hand ops out
  std::uint16_t max_groups = 64;
  PollingConfig polling;
  std::size_t tx_trace_bursts = 0;  ///< kept for each port; 0 = none
};

class Lane {
 public:
  explicit Lane(const LaneConfig& config);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// One round. Embedded mode calls it with a time of its own that never goes back.
  /// @return whether there was anything to do.
  bool poll_once(TimeNs now) noexcept;

  /// Rounds by the polling policy until `stop` is set (ring the lane's bell then).
  void run(const std::atomic<bool>& stop) noexcept;

  // What run() does between rounds, for a caller that drives the lane itself.
  /// Once, before the first sleep, by the thread that drives the lane.
  void prepare_sleep() noexcept;
  /// What the polling policy says after a round, its sleep cut to the next deadline.
  [[nodiscard]] IdleStep after_round(TimeNs now, bool worked) noexcept;
  /// Sleeps until something comes that has a bell, but no longer; a PreciseSleeps should live.
  void sleep(TimeNs sleep_ns, TimeNs now) noexcept;

  /// Earliest time at which poll_once() has something to do without a packet or a message.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;
  static constexpr TimeNs kPublicationNs = 10'000'000;
  /// Written by the lane; read with read_counter().
  [[nodiscard]] const LaneCounters& counters() const noexcept { return counters_; }
  /// The same, of the faults that were injected on one of its ports.
  [[nodiscard]] const port::FaultCounters& fault_counters(std::uint16_t port) const noexcept {
    return ports_[port].stage->counters();
  }
  /// What left by a port, for who has stopped the lane.
  [[nodiscard]] const TxTrace& tx_trace(std::uint16_t port) const noexcept {
    return ports_[port].trace;
  }
  /// How many groups a round asks, for who drives the lane.
  [[nodiscard]] std::size_t groups_awake() const noexcept { return awake_.size(); }
  /// Any thread.
  [[nodiscard]] const TraceRing& trace() const noexcept { return trace_; }
  /// All groups here, in one look, each as it was at most kPublicationNs of the lane's time ago;
  /// any thread; it allocates.
  [[nodiscard]] std::vector<command::PublishedStatus> published() const;

 private:
  struct LanePort {
    const port::Port* port = nullptr;
    std::uint16_t port_id = 0;
    wire::MacAddress mac{};
    wire::IpAddress ip;
    std::optional<std::uint16_t> vlan_id;
    bool rx_exclusive = false;
    bool rx_interrupts = false;
    std::uint16_t rx_burst = 32;
    TxQueue tx;
    bool takes_bursts = false;  // since this round began
    port::ReplyLimit echoes;
    port::SenderLimit arp{SipHashKey{}};
    std::unique_ptr<port::FaultStage> stage;
    port::FaultStage* faults = nullptr;  // the stage while it has something to do
    PortShare share{0, 0};               ///< of the port's rate, and among groups
    std::size_t next_first = 0;          ///< place in awake_, if the port is not paced
    TxTrace trace;
  };
  /// One group on this lane.
  struct GroupSlot {
    collective::Shard* shard = nullptr;  // nullptr = free
    std::uint64_t handle = 0;
    std::uint16_t down_port = 0;
    std::uint16_t up_port = 0;
    std::uint32_t full_frame_bytes = 0;
    bool closed = false;
    bool abort_told = false;  // to the control thread
    bool touched = false;
    bool awake = true;
    bool expects = false;            // while it rests: an op of it is unfinished
    std::uint32_t quiet_rounds = 0;  // in a row in which nothing happened to it
    TimeNs wake_at = kNever;         // while it rests
    const collective::OpSpec* specs = nullptr;
    std::uint64_t ready_seq = 0;   // may be posted
    std::uint64_t posted_seq = 0;  // were
    std::uint64_t done = 0;        // finished, in any order
    bool leaving = false;
    command::Request* leave = nullptr;  // that this lane gives back
    command::MembersWait members;
    bool has_report = false;  // one that found no room
    command::LaneReport report;
  };

  // lane.cc
  void publish(TimeNs now) noexcept;
  bool take_ops(TimeNs now) noexcept;
  void post_ops(GroupSlot& slot, TimeNs now) noexcept;

  // lane_shards.cc
  bool poll_shards(TimeNs now, bool idle) noexcept;
  bool poll_shard(std::uint16_t index, TimeNs now, bool idle) noexcept;
  /// @return the bytes of the frames, as they leave.
  static std::uint64_t push(LanePort& port, std::span<rte_mbuf* const> frames) noexcept;
  [[nodiscard]] std::size_t first_asked(const LanePort& port) const noexcept;
  void tell_abort(GroupSlot& slot, TimeNs now) noexcept;
  /// @return whether all were taken, and told.
  bool take_events(GroupSlot& slot, TimeNs now) noexcept;
  /// Rounds ask the group again, if it rested.
  void wake(GroupSlot& slot) noexcept;
  void wake_due(TimeNs now) noexcept;
  /// Lets the group at that place of awake_ rest, if it has nothing to do for long enough.
  void rest_if_idle(std::size_t place, TimeNs now) noexcept;
  void forget_awake(std::uint16_t index) noexcept;
  void trace_op(TraceType type, TimeNs at, std::uint64_t handle, std::uint64_t op_seq,
                std::uint64_t value, Collective collective) noexcept;
  void trace_abort(std::uint64_t handle, const AbortReason& reason, TimeNs now) noexcept;
  void op_done(const GroupSlot& slot, const collective::Event& event, TimeNs now) noexcept;
  bool report(GroupSlot& slot) noexcept;

  // lane_requests.cc
  bool take_requests(TimeNs now) noexcept;
  void handle(command::Request& request, TimeNs now) noexcept;
  bool add_group(command::Request& request, TimeNs now) noexcept;
  void abort_group(std::uint64_t handle, const AbortReason& reason, TimeNs now) noexcept;
  void leave_group(command::Request& request, TimeNs now) noexcept;
  void release(GroupSlot& slot) noexcept;
  [[nodiscard]] GroupSlot* find_group(std::uint64_t handle) noexcept;

  // lane_rx.cc
  bool receive(TimeNs now) noexcept;
  [[nodiscard]] static std::span<rte_mbuf* const> pass_faults(LanePort& port,
                                                              std::span<rte_mbuf* const> arrived,
                                                              TimeNs now) noexcept;
  void receive_frame(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  /// The group of packet_'s tag whose neighbour sent it; if none did, any group of that tag.
  /// @return its slot; kNoSlot if there is none.
  [[nodiscard]] std::uint16_t slot_of(const wire::IpAddress& source,
                                      collective::PacketSource& from) const noexcept;
  void note_other_version(const wire::FrameView& view, TimeNs now) noexcept;
  void receive_packet(rte_mbuf* frame, const wire::FrameView& view, TimeNs now) noexcept;
  /// Of several segments.
  void receive_segments(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  void receive_split(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  void receive_whole(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  [[nodiscard]] static bool is_split_chunk(const rte_mbuf* frame,
                                           const wire::FrameView& view) noexcept;
  [[nodiscard]] bool gather(rte_mbuf* frame) noexcept;
  /// By VLAN and MAC address.
  [[nodiscard]] static bool comes_to(const LanePort& port, const wire::FrameView& view) noexcept;
  /// A UDP datagram, by address and port.
  [[nodiscard]] bool is_for_lane(const LanePort& port, const wire::FrameView& view) const noexcept;
  void drop(rte_mbuf* frame, wire::Drop why) noexcept;
  void pass_to_control(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  void echo(std::uint16_t port_index, rte_mbuf* frame, const wire::FrameView& view,
            TimeNs now) noexcept;
  bool take_control_frames() noexcept;

  // lane_run.cc
  [[nodiscard]] bool has_messages() const noexcept;

  static constexpr std::uint16_t kMaxBurst = port::FaultStage::kBurst;
  /// Frames are received whole, then their payloads are read again to be checked and reduced: more
  /// than the L1 cache holds would be fetched twice, and the neighbour would wait for the end.
  static constexpr std::uint32_t kRoundBytes = 32u << 10;
  static constexpr int kRequestsPerRound = 8;
  /// A group rests after so many quiet rounds, if it has nothing to do for kRestNsMin: longer than
  /// an acknowledgement is put off, so that one that waits keeps it awake.
  static constexpr std::uint32_t kQuietRounds = 64;
  static constexpr TimeNs kRestNsMin = 1'000'000;
  static constexpr TimeNs kRestNs = 5'000'000;

  LaneConfig config_;
  Notices notices_;
  LaneCounters counters_;
  TraceRing trace_;
  std::vector<LanePort> ports_;
  std::vector<GroupSlot> slots_;         // [max_groups], at fixed places: groups_ names them
  std::vector<std::uint16_t> in_use_;    // indexes into slots_
  std::vector<std::uint16_t> awake_;     // those of in_use_ that a round asks; the others rest
  TimeNs next_wake_ = kNever;            // not after the earliest wake_at
  std::uint32_t resting_expecting_ = 0;  // groups that rest and have an unfinished op
  std::unordered_map<std::uint64_t, std::uint16_t> group_index_;  // by handle: index into slots_
  std::vector<std::uint16_t> touched_;
  GroupIndex groups_;                                         // those that are not closed
  std::vector<Snapshot<command::PublishedStatus>> statuses_;  // as slots_
  TimeNs next_publication_ = 0;
  std::unique_ptr<CommandPort> commands_;
  wire::Packet packet_;
  wire::FrameView view_;  ///< of the frame that is being looked at
  TimeNs next_version_note_ = 0;
  collective::Outbox outbox_;
  bool expecting_ = false;  // an op is unfinished: packets will come
  bool flowed_ = false;     // in this round: data, ops or requests, not what keeps neighbours alive
  Polling polling_;
  Sleeper sleeper_;
  bool interrupts_ = false;  // a packet on any port ends a sleep
};

}  // namespace gradwire::lane
