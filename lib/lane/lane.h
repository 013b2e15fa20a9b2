// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One lane: its queue on each port, its shards, and the loop that joins them. Each round takes
/// messages of the control thread and the command lane, receives a burst from each port, gives
/// packets to their shards, lets every shard send, and reports what happened. Lane 0 is also the
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

#include "base/recent_most.h"
#include "base/sip_hash.h"
#include "collective/data_runs.h"
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
#include "port/neighbors/reply_limit.h"
#include "port/payload_pool.h"
#include "port/port.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::lane {

/// How much of a frame the control thread gets: neighbor discovery has options of any length.
inline constexpr std::size_t kControlFrameBytes = 768;

struct LaneConfig {
  std::uint8_t lane = 0;
  std::uint8_t lanes = 1;                       ///< how many lanes share each port's rate
  std::uint16_t udp_port = 0;                   ///< this lane's: the daemon's base port + lane
  std::vector<const port::Port*> ports;         ///< started; queue `lane` of each is this lane's
  const port::PayloadPool* payloads = nullptr;  ///< where ports split payloads off
  command::LaneRings rings;
  command::SharedRings shared;
  SipHashKey hash_secret;     ///< random, so that nobody can choose keys that collide
  bool command_lane = false;  ///< takes the clients' commands: lane 0 of a daemon
  std::vector<command::LaneRings>
      all_lanes;  ///< command lane only: every lane's rings, to pass ops to the lanes
  std::uint16_t max_groups = 64;
  PollingConfig polling;
  std::size_t tx_trace_bursts = 0;  ///< how many bursts are remembered for each port; 0 = none
};

class Lane {
 public:
  explicit Lane(const LaneConfig& config);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// One round. An embedding program calls it with its own time, which must never decrease.
  /// @return whether there was anything to do.
  bool poll_once(TimeNs now) noexcept;

  /// Runs rounds, and sleeps between them as the polling policy says, until `stop` is set (ring the
  /// lane's bell then).
  void run(const std::atomic<bool>& stop) noexcept;

  // What run() does between rounds, for a caller that drives the lane itself.
  /// @return what to do after a round, by the polling policy; a sleep ends at the next deadline.
  [[nodiscard]] IdleStep after_round(TimeNs now, bool worked) noexcept;
  /// Sleeps for at most `sleep_ns`, or until something rings a bell; a PreciseSleeps should exist.
  void sleep(TimeNs sleep_ns, TimeNs now) noexcept;

  /// Earliest time at which poll_once() has something to do without a packet or a message.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;
  static constexpr TimeNs kPublicationNs = 10'000'000;
  /// The longest round of the last minute, in microseconds of run() and in steps: a request, a
  /// frame, an op or a transfer posted, a shard called, and those of the command lane. Steps are
  /// counted, so they say the same on a busy machine. Any thread.
  [[nodiscard]] std::uint64_t round_us_max() const noexcept { return round_us_.read(); }
  [[nodiscard]] std::uint64_t round_steps_max() const noexcept { return round_steps_.read(); }
  /// Written by the lane; read with read_counter().
  [[nodiscard]] const LaneCounters& counters() const noexcept { return counters_; }
  /// The same for the faults injected on one of its ports.
  [[nodiscard]] const port::FaultCounters& fault_counters(std::uint16_t port) const noexcept {
    return ports_[port].stage->counters();
  }
  /// What was sent by a port. Call it only when the lane has stopped.
  [[nodiscard]] const TxTrace& tx_trace(std::uint16_t port) const noexcept {
    return ports_[port].trace;
  }
  /// How many groups are not resting. Only the thread that drives the lane may call it.
  [[nodiscard]] std::size_t groups_awake() const noexcept { return awake_.size(); }
  /// Any thread.
  [[nodiscard]] const TraceRing& trace() const noexcept { return trace_; }
  enum class Which : std::uint8_t { kAll, kNotIdle };
  /// The status of groups on this lane, each at most kPublicationNs of the lane's time old: of all,
  /// or not of those for transfers alone that have none under way. Any thread; allocates.
  [[nodiscard]] std::vector<command::PublishedStatus> published(Which which = Which::kAll) const;

 private:
  struct LanePort {
    const port::Port* port = nullptr;
    std::uint16_t port_id = 0;
    wire::MacAddress mac{};
    wire::IpAddress ip;
    std::optional<std::uint16_t> vlan_id;
    bool rx_exclusive = false;
    bool armed = false;  // its interrupt is enabled for the current sleep
    int socket = -1;     // the driver's, while packets there end a sleep
    bool wakes = false;  // a packet ended the last sleep for which it was, or would have
    std::uint16_t rx_burst = 32;
    TxQueue tx;
    bool takes_bursts = false;  // as of the start of this round
    port::ReplyLimit echoes;
    port::SenderLimit arp{SipHashKey{}};
    port::ReplyLimit too_big{100'000'000};
    std::unique_ptr<port::FaultStage> stage;
    port::FaultStage* faults = nullptr;  // nullptr while the stage has nothing to do
    PortShare share{0, 0};       ///< this lane's part of the port's rate, divided among groups
    std::size_t next_first = 0;  ///< place in awake_, if the port is not paced
    TxTrace trace;
  };
  /// One group on this lane.
  struct GroupSlot {
    collective::Shard* shard = nullptr;  // nullptr = free
    std::uint64_t handle = 0;
    std::uint16_t down_port = 0;
    std::uint16_t up_port = 0;
    std::uint32_t any_ports = 0;  // a bit for each that Outbox::any() may use
    std::uint32_t full_frame_bytes = 0;
    bool closed = false;
    bool abort_told = false;  // the control thread was told
    bool touched = false;
    bool awake = true;
    bool expects = false;             // valid while it rests: it has an unfinished op
    bool moves = false;               // valid while it rests: of a collective
    bool rests_long = false;          // valid while it rests: for kLongRestNs at most
    bool shown = false;               // its status was published, and nothing has changed since
    std::uint64_t polled = 0;         // the last round that called it
    std::uint32_t quiet_rounds = 0;   // rounds in a row in which nothing happened to it
    TimeNs wake_at = kNever;          // while it rests
    TimeNs deadline = kNever;         // its shard's, when it began to rest
    std::uint16_t resting_place = 0;  // while it rests: in Resting::groups
    const collective::OpSpec* specs = nullptr;
    std::uint64_t ready_seq = 0;   // ops up to this one may be posted
    std::uint64_t posted_seq = 0;  // ops up to this one were posted
    std::uint64_t done = 0;        // ops finished, in any order
    std::uint32_t streams = 0;     // ops posted and unfinished that are more than a few packets
    bool leaving = false;
    command::Request* leave = nullptr;  // a request that this lane has to return
    command::MembersWait members;
    bool has_report = false;  // `report` could not be sent yet, because there was no room
    command::LaneReport report;
  };

  struct Resting {
    std::vector<std::uint16_t> groups;  // indexes into slots_
    TimeNs next_wake = kNever;          // not later than the earliest wake_at
    TimeNs deadline = kNever;           // likewise of `deadline`, and not before next_wake
  };

  /// Ops of more bytes are more than a few packets.
  static constexpr std::uint64_t kStreamBytes = 16 << 10;

  // lane.cc
  void publish(TimeNs now) noexcept;
  bool take_ops(TimeNs now) noexcept;
  bool take_transfers(TimeNs now) noexcept;
  void post_ops(GroupSlot& slot, TimeNs now) noexcept;

  // lane_shards.cc
  bool poll_shards(TimeNs now, bool idle) noexcept;
  bool poll_shard(std::uint16_t index, TimeNs now, bool idle) noexcept;
  /// @return how many frames the shard may send by any of its ports.
  [[nodiscard]] std::size_t room_by_any(const GroupSlot& slot, TimeNs now) const noexcept;
  void push_by_any(std::span<rte_mbuf* const> frames, TimeNs now) noexcept;
  /// @return the frames' bytes on the wire.
  [[nodiscard]] std::size_t first_asked(const LanePort& port) const noexcept;
  void tell_abort(GroupSlot& slot, TimeNs now) noexcept;
  void tell_key_wishes(GroupSlot& slot) noexcept;
  /// @return whether all events were taken and reported.
  bool take_events(GroupSlot& slot, TimeNs now) noexcept;
  /// Ends the group's rest, so that rounds call its shard again.
  void wake(GroupSlot& slot) noexcept;
  void wake_due(Resting& resting, TimeNs now) noexcept;
  /// Lets the group at `place` in awake_ rest if it has nothing to do for long enough.
  void rest_if_idle(std::size_t place, TimeNs now) noexcept;
  /// Until when a group rests at most, if it rests now.
  [[nodiscard]] static TimeNs longest_rest(const GroupSlot& slot, TimeNs now) noexcept;
  void forget_awake(std::uint16_t index) noexcept;
  void forget_resting(const GroupSlot& slot) noexcept;
  void trace_op(TraceType type, TimeNs at, std::uint64_t handle, std::uint64_t op_seq,
                std::uint64_t value, const collective::OpRecord& op) noexcept;
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
  [[gnu::always_inline]] inline void receive_frame(std::uint16_t port_index, rte_mbuf* frame,
                                                   TimeNs now) noexcept;
  /// A frame that does not go on with the run that is under way, which ends.
  void receive_unlike(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  /// Finds the group with the tag of packet_ whose neighbor sent it; if there is none, any group
  /// with that tag.
  /// @return its slot; kNoSlot if there is none.
  [[nodiscard]] std::uint16_t slot_of(const wire::IpAddress& source,
                                      collective::PacketSource& from) const noexcept;
  static constexpr TimeNs kNoteNs = 1'000'000;  ///< between notes of what does not fit
  void note_other_group(const wire::FrameView& view, TimeNs now) noexcept;
  void note_other_version(const wire::FrameView& view, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop open_packet(collective::Shard& shard, rte_mbuf*& frame,
                                       wire::FrameView& view,
                                       std::span<const std::byte>& packet) const noexcept;
  void note_unfit_hello(collective::Shard& shard, wire::Drop drop,
                        const wire::IpAddress& source) const noexcept;
  void receive_packet(std::uint16_t port_index, rte_mbuf* frame, wire::FrameView& view,
                      TimeNs now) noexcept;
  void touch(std::uint16_t index) noexcept;
  /// Handles a frame of several segments.
  void receive_segments(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  void receive_split(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  void receive_whole(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  [[nodiscard]] bool is_of_a_rank(const wire::FrameView& view) noexcept;
  [[nodiscard]] static bool is_split_chunk(const rte_mbuf* frame,
                                           const wire::FrameView& view) noexcept;
  [[nodiscard]] bool gather(rte_mbuf* frame) noexcept;
  /// Whether the frame is addressed to the port, by VLAN and MAC address.
  [[nodiscard]] static bool comes_to(const LanePort& port, const wire::FrameView& view) noexcept;
  /// Whether an IP packet is addressed to the port's address, and to no group of hosts.
  [[nodiscard]] static bool is_for_port(const LanePort& port, const wire::FrameView& view) noexcept;
  /// Whether a UDP datagram is addressed to this lane, by IP address and port.
  [[nodiscard]] bool is_for_lane(const LanePort& port, const wire::FrameView& view) const noexcept;
  void drop(rte_mbuf* frame, wire::Drop why) noexcept;

  // lane_control_frames.cc
  /// @param sender  what tells it from others.
  void pass_to_control(std::uint16_t port_index, rte_mbuf* frame, std::span<const std::byte> sender,
                       TimeNs now) noexcept;
  void echo(std::uint16_t port_index, rte_mbuf* frame, const wire::FrameView& view,
            TimeNs now) noexcept;
  void too_big(std::uint16_t port_index, rte_mbuf* frame, const wire::FrameView& view,
               TimeNs now) noexcept;
  bool take_control_frames() noexcept;

  // lane_run.cc
  /// What is under way, neither if nothing is.
  struct Waits {
    bool message = false;  ///< sends and receives alone
    /// Those, and collectives of a few packets, and not for long yet.
    bool few_packets = false;
  };
  [[nodiscard]] Waits waits_for(TimeNs now) const noexcept;
  /// Whether packets that come by the port are to end a sleep. Without an op only acknowledgements
  /// and packets of later ops come, which would take the core from the client that is about to post
  /// the op; while a large collective moves, a timer lets several packets come for each wake-up.
  /// From ranks of this host, through memory, so it is with a small one. A NIC's interrupts tell of
  /// all.
  [[nodiscard]] static bool packets_should_wake(const LanePort& port, Waits waits) noexcept;
  [[nodiscard]] bool enable_interrupt(LanePort& port, bool wanted) noexcept;
  [[nodiscard]] bool has_messages() const noexcept;

  static constexpr std::uint16_t kMaxBurst = port::FaultStage::kBurst;
  /// Frames are received first, and then their payloads are read again to be checked and reduced.
  /// More bytes than the L1 cache holds would be fetched twice, and the neighbor would wait until
  /// the end.
  static constexpr std::uint32_t kRoundBytes = 32u << 10;
  static constexpr int kRequestsPerRound = 8;
  static constexpr int kTransfersPerRound = 256;
  /// A group rests after this many quiet rounds if it has nothing to do for kRestNsMin. That is
  /// longer than an acknowledgement is delayed, so a delayed acknowledgement keeps the group awake.
  static constexpr std::uint32_t kQuietRounds = 64;
  static constexpr TimeNs kRestNsMin = 1'000'000;
  static constexpr TimeNs kRestNs = 5'000'000;
  /// The same of a group for transfers alone that has none under way: nothing is to be counted, and
  /// there may be a thousand. They wake together, so that they are looked for seldom, and
  /// kWakesPerRound in a round.
  static constexpr TimeNs kLongRestNs = 1'000'000'000;
  static constexpr TimeNs kLongRestEnds = 64'000'000;
  static constexpr std::size_t kWakesPerRound = 64;

  LaneConfig config_;
  Notices notices_;
  LaneCounters counters_;
  RecentMost round_us_;
  RecentMost round_steps_;
  std::uint64_t steps_ = 0;  // of the round, but for frames, shards and the command lane's
  TraceRing trace_;
  std::vector<LanePort> ports_;
  std::vector<GroupSlot> slots_;  // [max_groups]; slots never move, because groups_ refers to them
  std::vector<std::uint16_t> in_use_;  // indexes into slots_
  // Those of in_use_ whose shards a round calls; the others rest.
  std::vector<std::uint16_t> awake_;
  std::array<Resting, 2> resting_;  // those that rest: for short, and long
  TimeNs last_round_ = 0;
  std::uint64_t round_ = 0;
  std::uint32_t resting_expecting_ = 0;  // resting groups that have an unfinished op
  std::uint32_t resting_moving_ = 0;     // of these, groups that have one of a collective
  std::uint32_t resting_streams_ = 0;    // of these, such ops of more than a few packets
  std::unordered_map<std::uint64_t, std::uint16_t> group_index_;  // by handle: index into slots_
  std::vector<std::uint16_t> touched_;
  GroupIndex groups_;                                         // groups that are not closed
  std::vector<Snapshot<command::PublishedStatus>> statuses_;  // indexed like slots_
  std::vector<std::atomic<bool>> idle_;  // likewise: GroupSlot::shown, and of free ones
  TimeNs next_publication_ = 0;
  std::unique_ptr<CommandPort> commands_;
  wire::Packet packet_;
  wire::FrameView view_;  ///< of the frame being handled
  collective::DataRuns runs_;
  std::uint16_t run_slot_ = 0;  ///< of the group that the runs are of
  TimeNs next_version_note_ = 0;
  collective::Outbox outbox_;
  bool expecting_ = false;  // an op is unfinished: packets will come
  bool folding_ = false;    // a backend that takes its time has folds
  bool flowed_ = false;     // data, ops or requests came in this round; pings do not count
  Polling polling_;
  Sleeper sleeper_;
};

}  // namespace gradwire::lane
