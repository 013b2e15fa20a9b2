// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a shard tells those around it: states, events, frames to transmit, counters, status. Plain
/// data.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/counts.h"
#include "base/require.h"
#include "base/types.h"
#include "collective/ops/op_spec.h"
#include "collective/transfers/transfer.h"
#include "reduce/backend.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::collective {

enum class ShardState : std::uint8_t { kIdle, kForming, kFormed, kLeaving, kAborted, kClosed };
[[nodiscard]] const char* name_of(ShardState state) noexcept;

/// kFull: try again after an op is done. kTooLarge: never fits. kRefused: not formed, aborted, or
/// op_seq is not the next. kUnsupported: is_supported() says no.
enum class PostResult : std::uint8_t { kOk, kFull, kTooLarge, kRefused, kUnsupported };

enum class EventType : std::uint8_t {
  kFormed,         ///< both neighbors are there
  kOpDone,         ///< this lane's share of `op_seq` is finished: nobody here refers to its memory
  kAborted,        ///< `reason`; every unfinished op is lost; comes once
  kTransferDone,   ///< this lane's share of a transfer is finished; `op_seq` is its id
  kClosed,         ///< after leave() or after an abort: nothing refers to client memory, destroy me
  kTransferSized,  ///< of the receive `op_seq` of at most so many bytes, `bytes` come; the other
                   ///< lanes may be given it now
};
struct Event {
  EventType type = EventType::kFormed;
  std::uint64_t op_seq = 0;
  OpRecord op;              ///< kOpDone
  std::uint64_t bytes = 0;  ///< kTransferSized
};

/// Frames to transmit to one neighbor, whole (L2 on).
struct OutboxSide {
  static constexpr std::size_t kCapacity = 64;
  std::array<rte_mbuf*, kCapacity> frames{};
  std::size_t count = 0;
  std::size_t room = kCapacity;  ///< set lower by the lane while its port is behind

  [[nodiscard]] bool full() const noexcept { return count >= room; }
  /// Whether the port is not behind: what need not go may go too.
  [[nodiscard]] bool has_spare() const noexcept { return room >= count + kCapacity / 2; }
  void put(rte_mbuf* frame) noexcept {
    require(count < kCapacity, "a frame is put into an outbox that has room");
    frames[count++] = frame;
  }
};

/// What a shard sends in a round. The lane gives a fresh one per poll; it owns the mbufs then.
struct Outbox {
  static constexpr std::uint8_t kDown = 0;  ///< to the next rank: paced
  static constexpr std::uint8_t kUp = 1;    ///< to the rank before
  static constexpr std::uint8_t kAny = 2;   ///< each frame by the lane's port that its mbuf names
  std::array<OutboxSide, 3> boxes;

  [[nodiscard]] OutboxSide& down() noexcept { return boxes[kDown]; }
  [[nodiscard]] OutboxSide& up() noexcept { return boxes[kUp]; }
  [[nodiscard]] OutboxSide& any() noexcept { return boxes[kAny]; }
};

/// base/counts.h has the counters, each of which has a name and may have a metric.
struct ShardCounters : ShardCounts {
  std::array<std::uint64_t, wire::kDropCount> drops{};

  void count_drop(wire::Drop drop) noexcept { ++drops[static_cast<std::size_t>(drop)]; }
  ShardCounters& operator+=(const ShardCounters& other) noexcept;
};

/// A pause that is no stall yet: several round trips, and a sleeping lane's sleep.
inline constexpr TimeNs kStallNs = 5'000'000;

/// What came from a neighbor's address while the group formed, and did not fit: why it does not
/// form.
struct Unfit {
  std::uint8_t version = 0;     ///< of the chunk protocol, which is not this one; 0: none came
  bool other_epoch = false;     ///< a hello of the group came that has another epoch
  std::uint32_t epoch = 0;      ///< that one
  bool hello = false;           ///< a hello of the group came that is not this link's
  std::uint16_t says_rank = 0;  ///< it names this one as its sender
  bool unsealed = false;        ///< a hello of the group came that is not sealed as its packets are
};

/// An op by tiles on one lane. `missing_rank` is the rank of which most is missing.
struct TileProgress {
  std::uint32_t tiles = 0;        ///< that this rank folds; 0: none, or no op by tiles
  std::uint32_t folded = 0;       ///< of them
  std::uint32_t chunks = 0;       ///< of that rank's parts and results that come here
  std::uint32_t chunks_here = 0;  ///< of them, those that have come without a gap
};

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
  Unfit upstream_unfit;
  Unfit downstream_unfit;
  bool attached_heard = true;    ///< of the rank without members that hangs on this one: both
  std::uint32_t in_backend = 0;  ///< chunks that the backend has, or waits for room in it
  const char* backend_name = "";
  const char* backend_path = "";
  reduce::BackendCounters backend;
  // The link to the downstream rank, in RFC 9002's words.
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
  /// The oldest op neither starts nor ends before all ranks have posted it, and not all have.
  bool waits_for_posts = false;
  /// If so: this op the downstream rank and all after it have posted, up to the last one.
  bool posted_onwards = false;
  // The neighbors' addresses, of which each may have several: to which data goes, and since when
  // (0: since it formed); and to which acknowledgements go.
  wire::IpAddress downstream_ip;
  wire::IpAddress upstream_ip;
  TimeNs downstream_ip_since = 0;
  /// From which UDP ports this rank sends there.
  std::uint16_t downstream_source_port = 0;
  std::uint16_t upstream_source_port = 0;
  std::uint32_t peers_on_other_path = 0;  ///< ranks off the ring that do without their first path
  // Direct ops.
  std::uint16_t least_heard_rank = 0;  ///< of those that are awaited, the one heard longest ago
  TimeNs least_heard_ns = 0;           ///< for how long it was not; 0 = none is awaited
  std::uint32_t least_heard_unanswered = 0;  ///< inquiries that went there in this time
  wire::IpAddress least_heard_ip;            ///< where this rank sends to it now, if it is awaited
  bool is_contribution_missing = false;      ///< to the oldest op
  bool missing_rank_has_posted = false;      ///< or nobody here can know
  std::uint16_t missing_rank = 0;
  TileProgress tiles;  ///< of the oldest op, if it goes by tiles
  TransferWait transfer;
  std::uint64_t scratch_bytes = 0;  ///< of its scratch memory, what ops have used so far
  ShardCounters counters;
};

}  // namespace gradwire::collective
