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

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/recent_most.h"
#include "command/messages.h"
#include "lane/command_port.h"
#include "lane/counters.h"
#include "lane/group_slots.h"
#include "lane/lane_config.h"
#include "lane/lane_port.h"
#include "lane/notices.h"
#include "lane/op_log.h"
#include "lane/polling.h"
#include "lane/publications.h"
#include "lane/receive/lane_receiver.h"
#include "lane/rests.h"
#include "lane/sleeper.h"
#include "lane/trace_ring.h"
#include "lane/tx_trace.h"
#include "port/fault_stage.h"

namespace gradwire::lane {

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
  static constexpr TimeNs kPublicationNs = Publications::kSpacingNs;
  /// The longest round of the last minute, in microseconds of run() and in steps: a request, a
  /// frame, an op or a transfer posted, a shard called, and those of the command lane. Steps are
  /// counted, so they say the same on a busy machine. Any thread.
  [[nodiscard]] std::uint64_t round_us_max() const noexcept { return round_us_.read(); }
  [[nodiscard]] std::uint64_t round_steps_max() const noexcept { return round_steps_.read(); }
  /// Written by the lane; read with read_counter().
  [[nodiscard]] const LaneCounters& counters() const noexcept { return counters_; }
  /// What the faults did that are injected on one of its ports; read as counters().
  [[nodiscard]] const port::FaultCounters& fault_counters(std::uint16_t port) const noexcept {
    return ports_[port].stage->counters();
  }
  /// What was sent by a port. Call it only when the lane has stopped.
  [[nodiscard]] const TxTrace& tx_trace(std::uint16_t port) const noexcept {
    return ports_[port].trace;
  }
  /// How many groups are not resting. Only the thread that drives the lane may call it.
  [[nodiscard]] std::size_t groups_awake() const noexcept { return rests_.awake().size(); }
  /// Any thread.
  [[nodiscard]] const TraceRing& trace() const noexcept { return log_.trace(); }
  enum class Which : std::uint8_t { kAll, kNotIdle };
  /// The status of groups on this lane, each at most kPublicationNs of the lane's time old: of all,
  /// or not of those for transfers alone that have none under way. Any thread; allocates.
  [[nodiscard]] std::vector<command::PublishedStatus> published(Which which = Which::kAll) const {
    return statuses_.read(which == Which::kAll);
  }

 private:
  /// Ops of more bytes are more than a few packets.
  static constexpr std::uint64_t kStreamBytes = 16 << 10;

  // lane.cc
  void publish(TimeNs now) noexcept;
  bool take_ops(TimeNs now) noexcept;
  bool take_transfers(TimeNs now) noexcept;
  bool take_control_frames() noexcept;
  void post_ops(GroupSlot& slot, TimeNs now) noexcept;

  // lane_shards.cc
  bool poll_shards(TimeNs now, bool idle) noexcept;
  bool poll_shard(std::uint16_t index, TimeNs now, bool idle) noexcept;
  /// @return how many frames the shard may send by any of its ports.
  [[nodiscard]] std::size_t room_by_any(const GroupSlot& slot, TimeNs now) const noexcept;
  void push_by_any(std::span<rte_mbuf* const> frames, TimeNs now) noexcept;
  [[nodiscard]] std::size_t first_asked(const LanePort& port) const noexcept;
  void tell_abort(GroupSlot& slot, TimeNs now) noexcept;
  void tell_key_wishes(GroupSlot& slot) noexcept;
  /// @return whether all events were taken and reported.
  bool take_events(GroupSlot& slot, TimeNs now) noexcept;
  bool report(GroupSlot& slot) noexcept;

  // lane_requests.cc
  bool take_requests(TimeNs now) noexcept;
  void handle(command::Request& request, TimeNs now) noexcept;
  bool add_group(command::Request& request, TimeNs now) noexcept;
  void abort_group(std::uint64_t handle, const AbortReason& reason, TimeNs now) noexcept;
  void leave_group(command::Request& request, TimeNs now) noexcept;
  void release(GroupSlot& slot) noexcept;

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

  static constexpr int kRequestsPerRound = 8;
  static constexpr int kTransfersPerRound = 256;

  LaneConfig config_;
  Notices notices_;
  LaneCounters counters_;
  RecentMost round_us_;
  RecentMost round_steps_;
  std::uint64_t steps_ = 0;  ///< in this round, but for frames, shards and the command lane's
  OpLog log_;
  std::vector<LanePort> ports_;
  GroupSlots slots_;
  Rests rests_;
  std::uint64_t round_ = 0;
  Publications statuses_;
  std::unique_ptr<CommandPort> commands_;
  LaneReceiver receiver_;
  collective::Outbox outbox_;
  bool expecting_ = false;  ///< an op is unfinished: packets will come
  bool folding_ = false;    ///< a backend that takes its time has folds
  bool flowed_ = false;     ///< data, ops or requests came in this round; pings do not count
  Polling polling_;
  Sleeper sleeper_;
};

}  // namespace gradwire::lane
