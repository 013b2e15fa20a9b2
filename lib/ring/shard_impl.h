// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The state of a shard, declared in one place; its code is split by concern:
///   shard.cc            creation, posting, events, status
///   shard_receive.cc    what a received packet does; early packets
///   shard_backend.cc    what is done with payloads: entries, batches, completions
///   shard_send.cc       what goes out: retransmissions, transit, spilled and own chunks, acks
///   shard_lifecycle.cc  hello, silence, abort, bye
///   shard_progress.cc   who stalls; a group in which nothing moves though all have posted
/// One lane owns it. Nothing allocates after the constructor.
#pragma once

#include <algorithm>
#include <vector>

#include "ring/arrival.h"
#include "ring/early_packets.h"
#include "ring/fixed_queue.h"
#include "ring/fold_queue.h"
#include "ring/op_table.h"
#include "ring/packet_buffers.h"
#include "ring/payload_checks.h"
#include "ring/shard.h"

namespace gradwire::ring {

/// A first transmission and what is needed to repeat it. Its mbuf is held until it is acknowledged.
struct SentRecord {
  enum class State : std::uint8_t { kFree, kInFlight, kLost };
  State state = State::kFree;
  std::uint32_t generation = 0;
  std::uint64_t last_packet_number = 0;
  ReadyChunk chunk;
};

/// One of the two neighbours.
struct Neighbor {
  bool heard = false;               ///< its hello or hello-ack came: `connection_id` is known
  bool left = false;                ///< its bye came
  bool bye_acked = false;           ///< it has our bye
  bool aborted = false;             ///< it told us of an abort, so it knows of one
  std::uint32_t connection_id = 0;  ///< its own, for packets towards it
  std::uint64_t left_after_op_seq = 0;
  TimeNs silence_ns = 0;  ///< counted only while this lane polls
  TimeNs next_abort_reply = 0;
};

class Shard::Impl {
 public:
  Impl(const ShardConfig& config, std::unique_ptr<reduce::Backend> backend);
  ~Impl();

  // shard.cc
  void start(TimeNs now) noexcept;
  PostResult post(const OpSpec& spec, TimeNs now) noexcept;
  bool pop_event(Event& out) noexcept;
  ShardStatus status() const noexcept;
  TimeNs deadline(TimeNs now) const noexcept;

  // shard_receive.cc
  /// @return why it is no neighbour's.
  [[nodiscard]] wire::Drop check_sender(const wire::Packet& packet,
                                        const wire::IpAddress& source) const noexcept;
  void on_packet(rte_mbuf* frame, const wire::Packet& packet, const wire::IpAddress& source,
                 bool ecn_ce, TimeNs now) noexcept;

  // shard_backend.cc
  void flush(TimeNs now) noexcept;

  // shard_send.cc
  bool poll(TimeNs now, bool idle, Outbox& out) noexcept;

  // shard_lifecycle.cc
  bool wants_hello(const wire::HelloBody& hello, std::uint8_t lane) const noexcept;
  void abort(const AbortReason& reason, TimeNs now) noexcept;
  void leave(TimeNs now) noexcept;

  ShardConfig config_;
  ShardCounters counters_;
  AbortReason reason_;
  FoldQueue folds_;

 private:
  // shard.cc
  [[nodiscard]] bool live() const noexcept {
    return state_ == ShardState::kForming || state_ == ShardState::kFormed ||
           state_ == ShardState::kLeaving;
  }
  void emit(EventType type, std::uint64_t op_seq = 0, const OpRecord& record = {}) noexcept;
  void finish_if_done(Op& op) noexcept;
  void count_drop(wire::Drop drop) noexcept { ++counters_.drops[static_cast<int>(drop)]; }
  [[nodiscard]] std::uint64_t oldest_unfinished() const noexcept {
    return ops_.oldest_unfinished();
  }
  [[nodiscard]] std::uint32_t wire_bytes(std::uint32_t payload_bytes) const noexcept {
    return static_cast<std::uint32_t>(config_.to_downstream.bytes() + wire::kHeaderBytes) +
           payload_bytes * config_.payload_scale;
  }

  /// Absolute number of distinct chunks that the upstream rank may have sent: what was finished,
  /// and the buffers that this shard may hold beside it.
  [[nodiscard]] std::uint64_t credit_limit() const noexcept {
    return finished_chunks_ + buffers_.chunks_held();
  }
  /// A backend that finishes after the last acknowledgement frees buffers of which no packet would
  /// tell the upstream rank: a quarter of the window of them is told at once.
  void tell_credit() noexcept {
    if (credit_limit() - credit_told_ >= std::max(config_.window_packets / 4, 1u)) {
      receiver_.request_ack();
    }
  }

  // shard_receive.cc
  /// Each takes a packet; the return says whether the frame was taken too.
  /// @param checked  its payload is known to be right, and `frame` is the payload's mbuf.
  bool receive_data(rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce, bool checked,
                    TimeNs now) noexcept;
  bool hold_early(rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce, bool checked,
                  TimeNs now) noexcept;
  void receive_ack(const wire::Packet& packet, TimeNs now) noexcept;
  void apply_early(std::uint64_t op_seq, TimeNs now) noexcept;
  /// Takes what came early and could not be taken when its op was posted.
  void retry_early(TimeNs now) noexcept;
  /// Whether retry_early() would have something to do.
  [[nodiscard]] bool early_may_go() const noexcept;
  void report_mismatch(const OpCall& ours, const wire::DataHeader& theirs, TimeNs now) noexcept;
  void apply_outcome(const transport::Outcome& outcome, TimeNs now) noexcept;

  // shard_backend.cc
  /// Claims the chunk and queues its work. Owns the mbuf unless it returns false (no buffer).
  bool apply(Op& op, const wire::DataHeader& header, Arrival arrival, const Site& site,
             rte_mbuf* mbuf, std::byte* payload, std::uint32_t crc, TimeNs now) noexcept;
  [[nodiscard]] static const std::byte* own_part(const Op& op, const ChunkSpan& span) noexcept;
  [[nodiscard]] const std::byte* loaded_next(const Op& op, const ReadyChunk& chunk) const noexcept;
  void queue_entry(FoldWork& work, reduce::Kind kind, Op& op, const ChunkSpan& span, bool finalize,
                   TimeNs now) noexcept;
  /// Gives the backend what waits for it, and does what follows of what it is through with.
  void submit(TimeNs now) noexcept;
  void take_folded(TimeNs now) noexcept;
  void complete(const Folded& done, TimeNs now) noexcept;
  void complete_check(const Folded& done, TimeNs now) noexcept;
  /// Receives packets whose payloads have turned out right.
  void receive_checked(TimeNs now) noexcept;
  void abort_for_fold(std::uint64_t op_seq, TimeNs now) noexcept;

  // shard_progress.cc
  void account_stall(TimeNs now, TimeNs round) noexcept;
  void receive_progress_check(const wire::ProgressCheckBody& check, TimeNs now) noexcept;
  bool send_progress_checks(Outbox& out) noexcept;
  void ask(const wire::ProgressCheckBody& check) noexcept;
  void become_stuck(TimeNs now) noexcept;

  // shard_send.cc
  bool send_lost(TimeNs now, Outbox& out) noexcept;
  bool send_transit(TimeNs now, Outbox& out) noexcept;
  bool start_spilled(TimeNs now, Outbox& out) noexcept;
  bool start_own(TimeNs now, Outbox& out) noexcept;
  bool run_local(TimeNs now) noexcept;
  bool send_ack(TimeNs now, bool idle, Outbox& out) noexcept;
  bool send_ping_if_quiet(TimeNs now, Outbox& out) noexcept;
  void send_probes(TimeNs now, Outbox& out) noexcept;
  void send_ping(TimeNs now, Outbox& out) noexcept;
  /// Takes an mbuf for chunk `chunk` and queues the entry that fills it.
  bool start_outgoing(Op& op, std::uint64_t chunk, std::uint16_t hop, reduce::Kind kind,
                      TimeNs now) noexcept;
  [[nodiscard]] bool may_start(std::uint32_t payload_bytes, TimeNs now,
                               const Outbox& out) const noexcept;
  /// Whether a chunk of this op may go to the downstream rank; takes an eager place if needed.
  [[nodiscard]] bool take_grant(Op& op) noexcept;
  [[nodiscard]] bool has_grant(const Op& op) const noexcept;
  /// Whether the oldest spilled chunk has a grant. One that has none waits for the downstream
  /// rank's client, and must hold back nothing that this client may wait for.
  [[nodiscard]] bool spilled_may_go() const noexcept;
  /// Whether the op has its grant, and own chunks leave half of the window to what is on its way.
  [[nodiscard]] bool own_may_go(const Op& op) const noexcept;
  /// Whether something is there to be sent, and nothing but pacing or this rank's own buffers
  /// keep it: neither the downstream rank nor a client has to do anything first.
  [[nodiscard]] bool something_may_go() const noexcept;
  void release_eager(std::uint64_t posted_before) noexcept;
  bool transmit_first(const ReadyChunk& chunk, TimeNs now, Outbox& out) noexcept;
  bool transmit_record(SentRecord& record, TimeNs now, Outbox& out) noexcept;
  /// @param mbuf  the chunk's, or of its header alone.
  void write_data_frame(rte_mbuf* mbuf, const ReadyChunk& chunk,
                        std::uint64_t packet_number) noexcept;
  void sent_again(const SentRecord& record) noexcept;
  void free_record(SentRecord& record) noexcept;
  void drop_everything() noexcept;
  void notice_blocked(TimeNs now) noexcept;

  // shard_lifecycle.cc
  bool run_lifecycle(TimeNs now, Outbox& out) noexcept;
  /// Whether hellos go down: until they are answered, by an aborted rank too.
  [[nodiscard]] bool greets_downstream(TimeNs now) const noexcept {
    return (state_ == ShardState::kForming || state_ == ShardState::kAborted) &&
           config_.nranks > 1 && !downstream_.heard && !downstream_.aborted &&
           now - started_at_ < config_.timeouts.formation_ns;
  }
  void account_silence(TimeNs now) noexcept;
  /// Whether the next step of the oldest op is the downstream rank's: to grant, to acknowledge.
  [[nodiscard]] bool waits_for_downstream() const noexcept {
    return sender_.packets_in_flight() > 0 || !ready_.empty() || ops_.spilled() > 0 ||
           ops_.own_may_be_left();
  }
  /// A neighbour's id is set once: a hello with another one is dropped.
  /// @return whether `id` is the neighbour's.
  bool learn_connection_id(Neighbor& neighbor, std::uint32_t id) noexcept;
  void receive_hello(const wire::Packet& packet, TimeNs now) noexcept;
  void receive_hello_ack(const wire::Packet& packet, TimeNs now) noexcept;
  void receive_bye(const wire::Packet& packet, bool from_upstream, TimeNs now) noexcept;
  void check_left(const Neighbor& neighbor, std::uint16_t rank, TimeNs now) noexcept;
  [[nodiscard]] bool hello_fits(const wire::HelloBody& hello, std::uint16_t from_rank,
                                std::uint64_t incarnation, TimeNs now) noexcept;
  void become_formed_if_ready(TimeNs now) noexcept;
  [[nodiscard]] bool knows_of_abort(const Neighbor& neighbor, std::uint16_t rank) const noexcept;
  void become_aborted(const AbortReason& reason, TimeNs now) noexcept;
  bool send_hello(wire::PacketType type, TimeNs now, Outbox& out) noexcept;
  bool send_abort(bool down, TimeNs now, Outbox& out) noexcept;
  bool send_bye(wire::PacketType type, bool down, Outbox& out) noexcept;
  [[nodiscard]] bool all_sent_acknowledged() const noexcept;
  [[nodiscard]] std::uint64_t control_number() noexcept;
  /// What every packet to a neighbour begins with. A hello comes before its connection id is known.
  [[nodiscard]] wire::CommonHeader common_header(wire::PacketType type, bool down,
                                                 std::uint64_t packet_number) const noexcept {
    const std::uint32_t connection_id = down ? downstream_.connection_id : upstream_.connection_id;
    return {type,          down ? wire::kFlagFromUpstream : std::uint8_t{0},
            config_.lane,  type == wire::PacketType::kHello ? 0 : connection_id,
            packet_number, down ? config_.downstream_token : config_.upstream_token};
  }
  [[nodiscard]] std::uint16_t upstream_rank() const noexcept {
    return ring::upstream_rank(config_.rank, config_.nranks);
  }
  [[nodiscard]] std::uint16_t downstream_rank() const noexcept {
    return ring::downstream_rank(config_.rank, config_.nranks);
  }
  /// Encodes a packet without payload of its own class into a fresh mbuf and puts it in the box.
  template <class Encode>
  bool send_control(rte_mempool* pool, bool down, Outbox& out, Encode&& encode) noexcept;

  ShardState state_ = ShardState::kIdle;
  OpTable ops_;
  transport::Sender sender_;
  transport::Receiver receiver_;
  Neighbor upstream_;
  Neighbor downstream_;

  std::vector<SentRecord> records_;
  std::vector<std::uint32_t> records_free_;
  std::uint32_t lost_count_ = 0;      ///< records in state kLost
  FixedQueue<ReadyChunk> ready_;      ///< transit, and own or spilled chunks that are loaded
  std::uint32_t ready_promised_ = 0;  ///< places in it that pending entries will take
  PacketBuffers buffers_;
  EarlyPackets early_;
  PayloadChecks checks_;
  wire::Packet checked_packet_;
  FixedQueue<Event> events_;

  std::uint32_t eager_outstanding_ = 0;
  std::uint64_t distinct_sent_ = 0;    ///< first transmissions, what credit counts
  std::uint64_t finished_chunks_ = 0;  ///< arrivals that hold no buffer for lack of work any more
  std::uint64_t credit_told_ = 0;      ///< credit_limit() as the last acknowledgement said it
  std::uint32_t probes_wanted_ = 0;

  TimeNs last_poll_ = 0;
  TimeNs progress_at_ = 0;             ///< something arrived, was acknowledged or left the backend
  TimeNs progress_seen_ = 0;           ///< progress_at_ when stalled_ns_ began
  TimeNs stalled_ns_ = 0;              ///< since then, counted only while this lane polls
  TimeNs next_check_ns_ = 0;           ///< of stalled_ns_
  TimeNs next_return_ns_ = 0;          ///< of stalled_ns_: one that returns earlier does not count
  std::uint32_t checks_returned_ = 0;  ///< round the ring since then
  FixedQueue<wire::ProgressCheckBody> progress_checks_;  ///< to be sent or handed on
  TimeNs started_at_ = 0;
  TimeNs next_hello_ = 0;
  TimeNs last_down_sent_ = 0;
  bool hello_ack_wanted_ = false;
  bool bye_ack_up_wanted_ = false;
  bool bye_ack_down_wanted_ = false;
  TimeNs next_bye_ = 0;
  bool bye_sent_ = false;
  TimeNs leave_deadline_ = kNever;
  TimeNs close_at_ = kNever;
  bool leave_wanted_ = false;
  std::uint32_t aborts_sent_ = 0;
  TimeNs next_abort_ = kNever;
  bool abort_event_wanted_ = false;
  bool abort_reply_up_ = false;
  bool abort_reply_down_ = false;
  std::uint64_t control_numbers_ = 0;
  wire::AckHeader ack_;  // used by send_ack(), which sets what counts: clearing it costs 1 KiB
#ifdef GRADWIRE_PLANTED_BUGS
  void say_limits_once(wire::AckHeader& ack) noexcept {
    if (ack.credit_chunks == said_credit_chunks_) ack.credit_chunks = 0;
    if (ack.posted_op_seq == said_posted_op_seq_) ack.posted_op_seq = 0;
    said_credit_chunks_ = std::max(said_credit_chunks_, ack.credit_chunks);
    said_posted_op_seq_ = std::max(said_posted_op_seq_, ack.posted_op_seq);
  }
  std::uint64_t said_credit_chunks_ = 0;
  std::uint64_t said_posted_op_seq_ = 0;
#endif
};

template <class Encode>
bool Shard::Impl::send_control(rte_mempool* pool, bool down, Outbox& out,
                               Encode&& encode) noexcept {
  if (down ? out.down_count >= out.down_room : out.up_count >= out.up_room) return false;
  rte_mbuf* mbuf = rte_pktmbuf_alloc(pool);
  if (mbuf == nullptr) return false;
  const wire::FrameTemplate& frame = down ? config_.to_downstream : config_.to_upstream;
  auto* start = rte_pktmbuf_mtod(mbuf, std::byte*);
  const std::size_t room = rte_pktmbuf_tailroom(mbuf);
  const std::size_t bytes =
      room > frame.bytes()
          ? encode(std::span<std::byte>(start + frame.bytes(), room - frame.bytes()))
          : 0;
  if (bytes == 0) {
    rte_pktmbuf_free(mbuf);
    return false;
  }
  frame.write(start, bytes);
  mbuf->data_len = static_cast<std::uint16_t>(frame.bytes() + bytes);
  mbuf->pkt_len = mbuf->data_len;
  (down ? out.down[out.down_count++] : out.up[out.up_count++]) = mbuf;
  return true;
}

}  // namespace gradwire::ring
