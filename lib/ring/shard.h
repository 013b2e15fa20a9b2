// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One group's share on one lane: the ring schedule, the two connections (to the downstream rank
/// and from the upstream rank), formation, abort and leave. It takes decoded packets and time, and
/// gives frames ready to transmit and events. It knows no port, clock, socket or thread, so the
/// simulator runs the very same object.
///
/// create() runs on the control thread and is the only place that allocates (mempools apart); from
/// then on one lane owns the object; every other call is noexcept and bounded.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/abort_reason.h"
#include "base/defaults.h"
#include "base/result.h"
#include "base/types.h"
#include "base/window.h"
#include "reduce/backend.h"
#include "transport/receiver.h"
#include "transport/sender.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::ring {

/// One op as the lane posts it; the same on every lane of the rank.
struct OpSpec {
  std::uint64_t op_seq = 0;  ///< 1, 2, 3, ... without a gap
  std::uint64_t count = 0;   ///< elements
  std::uint32_t tag = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  /// [member_count of the group] bases of [count] elements each. They stay valid until the op's
  /// done event of this shard, or until the shard is closed.
  std::array<const std::byte*, kMaxMembers> inputs{};
  std::array<std::byte*, kMaxMembers> outputs{};
};

struct ShardTimeouts {
  /// From start() until formed.
  TimeNs formation_ns = defaults::ms(defaults::kFormationMs);
  /// Between hellos.
  TimeNs hello_interval_ns = defaults::ms(defaults::kHelloMs);
  /// After sending nothing down for so long: ping.
  TimeNs ping_interval_ns = defaults::ms(defaults::kPingMs);
  /// A neighbour not heard for so long is dead.
  TimeNs silence_ns = defaults::ms(defaults::kSilenceMs);
  /// From leave() until closed, whatever the neighbours say.
  TimeNs leave_ns = defaults::ms(defaults::kLeaveMs);
  /// An op that every rank has posted, and no rank moved for so long while it polled: a bug, and
  /// the group aborts with AbortCode::kStuck.
  TimeNs stuck_ns = 30'000'000'000;
  friend bool operator==(const ShardTimeouts&, const ShardTimeouts&) = default;
};

struct ShardConfig {
  GroupKey key;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 1;
  std::uint16_t member_count = 1;
  std::uint8_t lane = 0;
  std::uint8_t lanes = 1;
  std::uint32_t payload_bytes = 0;         ///< multiple of 64, the same on every rank
  std::uint64_t table_digest = 0;          ///< of the group's table, the same on every rank
  std::uint64_t incarnation = 0;           ///< of this daemon
  std::uint64_t upstream_incarnation = 0;  ///< from the table
  std::uint64_t downstream_incarnation = 0;
  std::uint64_t upstream_token = 0;  ///< of the link to it, from the table: packets carry it
  std::uint64_t downstream_token = 0;
  std::uint32_t sender_connection_id = 0;    ///< ours, for what comes up (acknowledgements)
  std::uint32_t receiver_connection_id = 0;  ///< ours, for what comes down (data)
  wire::FrameTemplate to_downstream;
  wire::FrameTemplate to_upstream;
  wire::IpAddress downstream_ip;  ///< packets from elsewhere are foreign
  wire::IpAddress upstream_ip;
  rte_mempool* packet_pool = nullptr;  ///< data room >= frame headers + 64 + payload_bytes
  /// Where payloads lie in mbufs of their own, in a GPU's memory: the CPU neither reads nor writes
  /// them, frames are a header of packet_pool and a payload behind it, and the backend makes CRCs.
  /// nullptr: a payload follows its header.
  rte_mempool* payload_pool = nullptr;
  rte_mempool* control_pool = nullptr;  ///< acknowledgements, hellos, aborts: room for a hello
  transport::SenderConfig sender;
  transport::ReceiverConfig receiver;
  std::uint64_t window_bytes = 0;  ///< the most in flight; 0 = window_packets full
  transport::CongestionKind congestion = transport::parse_congestion(defaults::kCongestion).value();
  TimeNs swift_target_ns = defaults::us(defaults::kSwiftTargetUs);  ///< of the controller `swift`
  /// Of the simulator alone: bytes on the wire for each byte of payload held, so that windows and
  /// pacing see long packets that take little memory.
  std::uint32_t payload_scale = 1;
  /// Unacknowledged data packets; bounds the mbufs held.
  std::uint32_t window_packets = window_packets_for(0);
  /// Received and waiting to go on; beyond it chunks spill.
  std::uint32_t transit_packets = window_packets_for(0);
  /// Sent ahead of the grant, both ways; equal on all ranks.
  std::uint32_t eager_packets = defaults::kEagerPackets;
  /// Posted and unfinished; a power of two.
  std::uint32_t max_active_ops = defaults::kActiveOps;
  /// Of all active ops on this lane: room in bitmaps.
  std::uint32_t max_chunks = defaults::kLaneChunks;
  std::uint32_t batch_entries = 1;  ///< chunks handed to the backend at once; 1 keeps a payload in
                                    ///< L1 between its reduction and its CRC
  /// Chunks that the backend may have at once. One that finishes later than it is asked needs room
  /// for all that the credit lets in, and for own chunks: see pending_entries_wanted().
  std::uint32_t pending_entries = 128;
  /// The largest exchange (ring/partition.h), whole KiB; equal on all ranks.
  std::uint64_t exchange_bytes = defaults::kExchangeKib * 1024;
  std::uint64_t streaming_bytes = 8u << 20;  ///< results of ops from this size on are written past
                                             ///< the cache
  bool received_mbufs_are_exclusive =
      false;  ///< the driver's row: write in place even if refcnt > 1
  ShardTimeouts timeouts;
  friend bool operator==(const ShardConfig&, const ShardConfig&) = default;
};

/// mbufs of the packet pool that a shard of this configuration can hold at once: the lane's mempool
/// has to have so many for each shard, and its receive descriptors beside them (design rule 3).
[[nodiscard]] std::uint32_t packet_mbufs_needed(const ShardConfig& config) noexcept;
/// Where `window_packets` is 0 it becomes window_packets_for() the payload, where `transit_packets`
/// is 0 the window.
void settle_windows(ShardConfig& config, std::uint32_t payload_bytes) noexcept;
/// What every rank of a group must have alike, for the table (RankInfo::features): eager_packets,
/// kTokenFeature, and exchange_bytes in KiB from bit 16 on.
[[nodiscard]] std::uint32_t features_of(const ShardConfig& config) noexcept;
/// Packets carry the token of their link.
inline constexpr std::uint32_t kTokenFeature = 1u << 15;
/// Where the features of two ranks differ, for people: "transport.eager_packets is 32 at rank 1 and
/// 16 at rank 0"; empty where they do not.
[[nodiscard]] std::string features_difference(std::size_t rank, std::uint32_t features,
                                              std::size_t other_rank, std::uint32_t other);
/// So many entries that a slow backend makes neighbours wait for credit, and no packet is dropped.
[[nodiscard]] std::uint32_t pending_entries_wanted(const ShardConfig& config) noexcept;
/// Chunks of one op that fall to one lane; what max_chunks is compared with.
[[nodiscard]] std::uint64_t lane_chunks(std::uint64_t count, DataType datatype,
                                        std::uint16_t nranks, std::uint32_t payload_bytes,
                                        std::uint8_t lanes) noexcept;

enum class ShardState : std::uint8_t { kIdle, kForming, kFormed, kLeaving, kAborted, kClosed };
[[nodiscard]] const char* name_of(ShardState state) noexcept;

/// kFull: try again after an op is done. kTooLarge: never fits. kRefused: not formed, aborted, or
/// op_seq is not the next.
enum class PostResult : std::uint8_t { kOk, kFull, kTooLarge, kRefused };

enum class EventType : std::uint8_t {
  kFormed,   ///< both neighbours are there
  kOpDone,   ///< this lane's share of `op_seq` is finished: nobody here refers to its memory
  kAborted,  ///< `reason`; every unfinished op is lost; comes once
  kClosed,   ///< after leave() or after an abort: nothing refers to client memory, destroy me
};
/// When things happened to an op on this lane, and what it took.
struct OpRecord {
  TimeNs posted_at = 0;
  TimeNs first_chunk_at = 0;          ///< first chunk from the upstream rank; 0 = none came
  std::uint64_t bytes = 0;            ///< of the whole op, not of this lane's share
  std::uint64_t retransmissions = 0;  ///< of the shard while it was under way
};
struct Event {
  EventType type = EventType::kFormed;
  std::uint64_t op_seq = 0;
  OpRecord op;  ///< kOpDone
};

/// Frames to transmit, whole (L2 on). The lane gives a fresh one per poll; it owns the mbufs then.
struct Outbox {
  static constexpr std::size_t kCapacity = 64;
  std::array<rte_mbuf*, kCapacity> down{};
  std::array<rte_mbuf*, kCapacity> up{};
  std::size_t down_count = 0;
  std::size_t up_count = 0;
  std::size_t down_room = kCapacity;  ///< set lower by the lane while its port is behind
  std::size_t up_room = kCapacity;
};

/// Written by the lane that owns the shard, read by others for display (relaxed, each on its own).
struct ShardCounters {
  std::uint64_t data_packets_sent = 0;
  std::uint64_t data_bytes_sent = 0;        ///< payload
  std::uint64_t data_packets_received = 0;  ///< accepted, duplicates not counted
  std::uint64_t data_bytes_received = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t probes = 0;
  std::uint64_t acks_sent = 0;
  std::uint64_t acks_received = 0;
  std::uint64_t pings_sent = 0;
  std::uint64_t spills = 0;         ///< chunks finished to memory, to be sent from there
  std::uint64_t early_packets = 0;  ///< came before their op was posted here
  std::uint64_t copies = 0;         ///< payloads copied because an mbuf was shared
  std::uint64_t ops_done = 0;
  std::uint64_t ecn_ce_received = 0;  ///< data packets that came with Congestion Experienced
  /// Time for which an op was unfinished and nothing arrived and nothing was acknowledged for
  /// kStallNs: with something left to send, or unacknowledged, it is the downstream rank's; else
  /// the upstream rank's.
  std::uint64_t stalled_on_downstream_ns = 0;
  std::uint64_t stalled_on_upstream_ns = 0;
  std::array<std::uint64_t, wire::kDropCount> drops{};

  ShardCounters& operator+=(const ShardCounters& other) noexcept;
};

/// A pause that is no stall yet: several round trips, and a sleeping lane's sleep.
inline constexpr TimeNs kStallNs = 5'000'000;

/// What an operator asks: who waits for whom since when.
struct ShardStatus {
  ShardState state = ShardState::kIdle;
  std::uint64_t posted_op_seq = 0;             ///< by the client here
  std::uint64_t done_op_seq = 0;               ///< all up to it are done
  std::uint64_t downstream_posted_op_seq = 0;  ///< as the downstream rank said last
  TimeNs upstream_silence_ns = 0;
  TimeNs downstream_silence_ns = 0;
  std::uint64_t bytes_in_flight = 0;
  std::uint32_t transit_queued = 0;
  std::uint32_t early_held = 0;
  TimeNs smoothed_rtt_ns = 0;
  std::uint32_t pto_count = 0;
  bool upstream_heard = false;    ///< its hello came
  bool downstream_heard = false;  ///< its hello-ack came
  std::uint32_t in_backend = 0;   ///< chunks that the backend has, or waits for room in it
  const char* backend_name = "";
  const char* backend_path = "";
  reduce::BackendCounters backend;
  // The connection to the downstream rank, in RFC 9002's words.
  TimeNs latest_rtt_ns = 0;
  TimeNs min_rtt_ns = 0;
  TimeNs rttvar_ns = 0;
  std::uint64_t window_bytes = 0;
  std::uint32_t packets_in_flight = 0;
  std::uint32_t ecn_ce_reported = 0;  ///< packets that the downstream rank says came with CE
  std::uint64_t packets_lost = 0;     ///< spurious losses too
  std::uint64_t credit_chunks = 0;    ///< may be sent in all, and were
  std::uint64_t chunks_sent = 0;
  // The oldest unfinished op; none where posted_op_seq is done_op_seq.
  OpRecord oldest_op;
  TimeNs progress_at = 0;  ///< something arrived or was acknowledged, or an op was posted
  bool waits_for_downstream = false;
  ShardCounters counters;
};

class Shard {
 public:
  /// Checks the configuration's bounds. nranks 1 has no neighbours: templates and ids are unused.
  [[nodiscard]] static Result<std::unique_ptr<Shard>> create(
      const ShardConfig& config, std::unique_ptr<reduce::Backend> backend);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  void start(TimeNs now) noexcept;

  /// Posts the next op. Copies `spec`.
  [[nodiscard]] PostResult post(const OpSpec& spec, TimeNs now) noexcept;

  /// @return whether a hello (it carries no connection id yet) is for this shard.
  [[nodiscard]] bool wants_hello(const wire::HelloBody& hello, std::uint8_t lane) const noexcept;

  /// Takes a received frame and owns it from then on. `packet` is its decoded form, pointing into
  /// it; `source` the IP address it came from. Work on payloads waits for flush().
  void on_packet(rte_mbuf* frame, const wire::Packet& packet, const wire::IpAddress& source,
                 bool ecn_ce, TimeNs now) noexcept;
  /// End of a receive burst: reduces and stores what it brought.
  void flush(TimeNs now) noexcept;

  /// Sends what may go: acknowledgements, retransmissions, transit, spilled chunks, own chunks;
  /// handles timers. `idle`: no packet came in this round. Call it every round of the loop.
  /// @return whether it did anything.
  bool poll(TimeNs now, bool idle, Outbox& out) noexcept;
  /// Earliest time at which poll() has something to do without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;

  /// Ends the group on this rank with an error and tells both neighbours.
  void abort(const AbortReason& reason, TimeNs now) noexcept;
  /// Nothing more will be posted: finish, say bye, close. Unfinished ops at that time abort.
  void leave(TimeNs now) noexcept;

  /// @return whether an event was taken.
  [[nodiscard]] bool pop_event(Event& out) noexcept;

  [[nodiscard]] const AbortReason& reason() const noexcept;
  [[nodiscard]] const ShardConfig& config() const noexcept;
  [[nodiscard]] const ShardCounters& counters() const noexcept;
  [[nodiscard]] const char* backend_name() const noexcept;
  [[nodiscard]] const reduce::BackendCounters& backend_counters() const noexcept;
  [[nodiscard]] ShardStatus status(TimeNs now) const noexcept;

 private:
  class Impl;
  explicit Shard(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::ring
