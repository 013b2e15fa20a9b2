// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Direct ops: contributions to all other ranks and from them, and what the ranks tell each other
/// of these. It knows every rank of the group, in a round it looks at those alone that have
/// something to do, and it has one deadline.
///
/// Sending: our part of an op is copied into its scratch memory when it is posted; a packet is made
/// from there whenever one is sent, so nothing is held for what is on its way. Of ops that are not
/// posted at the other rank DirectPeer::kFloor chunks may be on their way, of others all.
///
/// Receiving: a contribution is copied to its op's scratch memory, or to one of the other rank's
/// early places until the op is posted here. It is acknowledged when it lies in the op's.
///
/// Acknowledging: by ops, not by packets. Every contribution says up to which op all has come, so
/// ops that follow each other need no other packet; a receipt goes alone if nothing else goes in
/// time, if a chunk comes twice, and as the answer to an inquiry.
///
/// Losing: whoever has something unacknowledged, and neither sends nor hears anything new for a
/// probe timeout, inquires. What the answer does not name is sent again. Who only awaits something
/// inquires when the links say so, which find who is silent.
///
/// Folding: what the backend does for an op goes in phases (DirectOp::Phase). A backend that works
/// at once is through with a phase when it has its entries, and stores each sum when it comes; to
/// any other they go by the fold queue, kDirectFolds of them at most, and sums are stored from
/// scratch memory when all are here.
///
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/zeroed_array.h"
#include "collective/direct/direct_peer.h"
#include "collective/direct/direct_scratch.h"
#include "collective/fixed_queue.h"
#include "collective/links/packet_buffers.h"
#include "collective/links/peer_links.h"
#include "collective/links/sweep.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"
#include "collective/shapes/shape.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "reduce/backend.h"
#include "wire/packet.h"

namespace gradwire::collective {

class Direct final : public PeerUser {
 public:
  /// @param config  whose direct_bytes are not 0; the shard's other parts outlive it.
  Direct(const ShardConfig& config, PeerLinks& links, const PacketBuffers& buffers, OpTable& ops,
         FoldQueue& folds, ShardCounters& counters);

  // Ops.
  /// Whether there is scratch memory for it, if it needs any. One that has to wait counts as
  /// something that this rank waits for.
  [[nodiscard]] bool admit(const OpPlan& plan, const OpSpec& spec) noexcept;
  enum class Progress : std::uint8_t { kNone, kDone, kFailed };
  /// An op off the ring was posted that has chunks on this lane. Else as advance().
  [[nodiscard]] Progress open(const Op& op, TimeNs now) noexcept;
  /// Does what may be done now. kDone once: nothing more of the op comes to this rank, and the
  /// backend is through with its memory.
  [[nodiscard]] Progress advance(const Op& op, TimeNs now) noexcept;
  /// The backend has done an entry of the op. Else as advance().
  [[nodiscard]] Progress on_folded(const FoldWork& work, const Op& op, TimeNs now) noexcept;
  /// Of its scratch memory, what ops have used so far.
  [[nodiscard]] std::size_t scratch_bytes() const noexcept { return scratch_.touched_bytes(); }
  /// Whether the backend does entries before it returns. If not, an op's memory is in use until
  /// advance() says kDone, also if nothing of it comes to this rank.
  [[nodiscard]] bool folds_at_once() const noexcept { return at_once_; }
  /// Gives the backend the entries for which there was no place.
  void refill() noexcept;
  /// What came ahead for an op that is posted now, and its place is free again. The payload holds
  /// until the next packet comes.
  struct Ahead {
    std::uint16_t rank = 0;
    EarlyContribution contribution;
  };
  [[nodiscard]] std::optional<Ahead> take_ahead(std::uint64_t op_seq) noexcept;
  /// Of a rank without members: what tells of the next op that is to be posted here.
  [[nodiscard]] std::optional<Ahead> told() noexcept;

  // Packets. Their rank is that of a peer: see PeerEnds::source_of().
  /// Any of the three types came. @return whether it brought something new.
  bool hear(const wire::Packet& packet, TimeNs now) noexcept;
  /// A contribution to an op that is not posted here. @return why it was not kept.
  [[nodiscard]] wire::Drop keep(const wire::Packet& packet, TimeNs now) noexcept;
  /// One to an op that was posted: it lies in its scratch memory now, or in the outputs, or was
  /// dropped.
  /// @param crc     of the payload; none if it is known to be right.
  /// @param called  the op; nullptr if it is done.
  [[nodiscard]] wire::Drop take(std::uint16_t rank, const wire::DataHeader& header,
                                std::span<const std::byte> payload,
                                std::optional<std::uint32_t> crc, const Op* called,
                                TimeNs now) noexcept;
  /// It said bye: it has all that it needs of ops up to that one.
  void on_left(std::uint16_t rank, std::uint64_t completed_op_seq, TimeNs now) noexcept;

  // Time.
  /// @return whether something was sent, or was due.
  bool run(TimeNs now, Outbox& out) noexcept;
  /// Packets that the last run() sent.
  [[nodiscard]] std::uint32_t sent_last() const noexcept { return sent_last_; }
  // What the links ask.
  [[nodiscard]] bool waits_for(std::uint16_t rank) const noexcept override {
    return unacknowledged(rank) || awaited(rank);
  }
  void ask(std::uint16_t rank, TimeNs now) noexcept override;
  void on_silent(std::uint16_t rank, TimeNs now) noexcept override;
  /// The first rank of which something is missing of an op; one that has not posted it goes first.
  struct Missing {
    std::uint16_t rank = 0;
    bool posted = false;  ///< there
  };
  [[nodiscard]] std::optional<Missing> missing(std::uint64_t op_seq) const noexcept;
  /// Earliest time at which run() has something to do without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept {
    return queue_.empty() ? watched_.next_due() : now;
  }
  /// Whether all has been acknowledged.
  [[nodiscard]] bool idle() const noexcept { return scratch_.empty(); }
  /// The group ended here.
  void drop_all() noexcept;
  /// Nothing more will be posted: whoever stays silent is not waited for.
  void leave() noexcept { leaving_ = true; }

 private:
  // direct_ops.cc
  [[nodiscard]] std::uint32_t part_width(DataType datatype) const noexcept;
  [[nodiscard]] std::uint64_t stride_of(const Partition& partition, std::uint64_t lane_chunks,
                                        DataType datatype) const noexcept;
  [[nodiscard]] std::uint16_t other(std::uint32_t ahead) const noexcept {
    return static_cast<std::uint16_t>((config_.rank + ahead) % config_.nranks);
  }
  /// Bytes of scratch memory of an op that has owners.
  struct Sizes {
    std::uint64_t segment = 0;
    std::uint64_t owned = 0;  ///< segments
    std::uint64_t own_parts = 0;
    std::uint64_t parts = 0;
    std::uint64_t sums = 0;
    [[nodiscard]] std::uint64_t total() const noexcept { return own_parts + parts + sums; }
  };
  [[nodiscard]] Sizes sizes_of(const Partition& partition, const Route& route,
                               const direct::Steps& steps, DataType datatype) const noexcept;
  [[nodiscard]] static std::uint64_t segments_of(const Partition& partition) noexcept {
    const std::uint64_t each = partition.chunks_per_segment();
    return (partition.total_chunks() + each - 1) / each;
  }
  [[nodiscard]] bool is_on_lane(std::uint64_t chunk) const noexcept {
    return chunk % config_.lanes == config_.lane;
  }
  void open_to_all(const Op& op) noexcept;
  void open_owners(const Op& op) noexcept;
  void start_parts(DirectOp& op, TimeNs now) noexcept;
  void before_more(std::uint16_t rank, TimeNs now) noexcept;
  void send_sums(DirectOp& op, TimeNs now) noexcept;
  /// Chunks that may go to a rank now and could not before.
  void send_more(DirectOp& op, std::uint16_t rank, std::uint64_t bits, TimeNs now) noexcept;
  [[nodiscard]] std::size_t first_to_send(const DirectOp& op) const noexcept;
  /// Of an op that has owners: this lane's chunks of a rank, and where chunks lie.
  [[nodiscard]] std::uint64_t owned_on_lane(const DirectOp& op, std::uint16_t rank) const noexcept;
  [[nodiscard]] std::uint64_t first_owned(const DirectOp& op, std::uint16_t rank) const noexcept;
  [[nodiscard]] std::uint64_t part_place(const DirectOp& op, std::uint64_t chunk) const noexcept;
  [[nodiscard]] std::uint64_t place_of(const DirectOp& op, std::uint64_t chunk) const noexcept;
  [[nodiscard]] std::byte* own_part(const DirectOp& op, std::uint64_t chunk) const noexcept;
  [[nodiscard]] std::byte* sum(const DirectOp& op, std::uint64_t chunk) const noexcept;
  [[nodiscard]] std::uint32_t sum_width(const DirectOp& op) const noexcept {
    return element_bytes(op.call.datatype());
  }
  // direct_gathered.cc
  [[nodiscard]] std::uint64_t gathered_scratch(const OpSpec& spec) const noexcept;
  [[nodiscard]] std::uint64_t message_bytes(const DirectOp& op,
                                            std::uint32_t distance) const noexcept;
  [[nodiscard]] std::uint64_t message_bits(const DirectOp& op,
                                           std::uint32_t distance) const noexcept;
  [[nodiscard]] std::uint32_t message_chunk_bytes(const DirectOp& op, std::uint32_t distance,
                                                  std::uint64_t chunk) const noexcept;
  void open_gathered(const Op& op) noexcept;
  [[nodiscard]] ChunkSpan block_of(const Op& op, std::uint32_t place) const noexcept;
  [[nodiscard]] std::byte* block_at(const Op& op, const DirectOp& direct,
                                    std::uint32_t place) const noexcept;
  void extend_reach(DirectOp& op, TimeNs now) noexcept;
  void hear_all_entered(std::uint64_t op_seq) noexcept;

  // direct_fold.cc
  struct Chunks {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };
  /// Of an op that has owners: those of this rank, on whatever lane.
  [[nodiscard]] Chunks own_chunks(const DirectOp& op) const noexcept;
  /// Those of the op's phase, on whatever lane.
  [[nodiscard]] Chunks chunks_of_phase(const DirectOp& op) const noexcept;
  [[nodiscard]] bool may_begin(const DirectOp& op) const noexcept;
  void begin(DirectOp& op, DirectOp::Phase phase) noexcept;
  void end_phase(DirectOp& op, TimeNs now) noexcept;
  enum class Given : std::uint8_t { kAll, kSome, kFailed };
  [[nodiscard]] Given give_entries(const Op& op, DirectOp& direct) noexcept;
  [[nodiscard]] bool give_next(const Op& op, DirectOp& direct, const ChunkSpan& span) noexcept;
  [[nodiscard]] bool has_place() const noexcept {
    return at_once_ || (in_backend_ < kDirectFolds && !folds_.full());
  }
  [[nodiscard]] bool give(const reduce::Entry& entry, DirectOp& op, std::uint16_t sources) noexcept;
  /// What a chunk of the op's phase is: its elements, and where in scratch memory it lies.
  [[nodiscard]] ChunkSpan span_of(const Op& op, const DirectOp& direct) const noexcept;
  [[nodiscard]] std::byte* memory_of_chunk(const Op& op, const DirectOp& direct) const noexcept;
  [[nodiscard]] std::byte* where_loaded(const DirectOp& op, std::uint64_t chunk) const noexcept;
  [[nodiscard]] reduce::Entry load_entry(const Op& op, const ChunkSpan& span,
                                         std::byte* to) const noexcept;
  [[nodiscard]] reduce::Entry store_entry(const Op& op, const ChunkSpan& span,
                                          std::byte* from) const noexcept;
  [[nodiscard]] reduce::Entry fold_entry(const Op& op, DirectOp& direct, const ChunkSpan& span,
                                         std::uint16_t sources) noexcept;
  void make_crcs(DirectOp& op) const noexcept;

  // direct.cc
  /// Where a chunk that came belongs.
  struct Arrival {
    std::uint64_t bit = 0;   ///< 0: it is nobody's
    std::uint64_t step = 0;  ///< all bits of its step from that rank
    std::uint64_t bytes = 0;
    std::byte* part = nullptr;  ///< where it is kept; nullptr: it goes to the outputs
  };
  [[nodiscard]] Arrival arrival_of(const DirectOp& op, std::uint16_t rank,
                                   const wire::DataHeader& header) const noexcept;
  [[nodiscard]] static bool in_two_steps(const DirectOp& op) noexcept {
    return op.steps.to_owner && op.steps.from_owner;
  }
  /// Whether nothing that this rank sends to the other says that it has entered the op, before the
  /// other has sent all that it gives.
  [[nodiscard]] bool says_nothing(const DirectOp& op, std::uint16_t rank) const noexcept {
    if (op.gathered) return scratch_.ready(op, rank) == 0;
    const std::uint64_t given = scratch_.given(op, rank);
    return (in_two_steps(op) ? given & kPartBits : given) == 0;
  }
  [[nodiscard]] std::uint64_t believed(std::uint16_t rank, std::uint64_t received) noexcept;
  void acknowledge(std::uint16_t rank, std::uint64_t received, TimeNs now) noexcept;
  void count_ahead(std::uint16_t rank) noexcept;
  void find_oldest_held() noexcept;
  void resend_missing(std::uint16_t rank, bool all) noexcept;

  // direct_send.cc
  void queue(std::uint16_t rank) noexcept;
  void watch(std::uint16_t rank, TimeNs due) noexcept;
  [[nodiscard]] bool unacknowledged(std::uint16_t rank) const noexcept {
    const DirectPeer& peer = peers_[rank];
    const DirectOp* op = scratch_.first_to(rank, peer.received);
    return op != nullptr && (scratch_.ready(*op, rank) & ~peer.chunks) != 0;
  }
  [[nodiscard]] bool awaited_before(std::uint16_t rank, std::uint64_t op_seq) const noexcept {
    return scratch_.received_from(rank, op_seq - 1) != op_seq - 1;
  }
  [[nodiscard]] bool awaited(std::uint16_t rank) const noexcept {
    return scratch_.received_from(rank, ops_.posted()) != ops_.posted();
  }
  [[nodiscard]] TimeNs patience(std::uint16_t rank) const noexcept;
  [[nodiscard]] bool is_in_vain(std::uint16_t rank) const noexcept;
  [[nodiscard]] bool is_lacking(std::uint16_t rank) const noexcept;
  void look_at_watched(TimeNs now) noexcept;
  void probe(std::uint16_t rank, TimeNs now) noexcept;
  void inquire(std::uint16_t rank, TimeNs now) noexcept;
  /// A chunk that goes to a rank.
  struct Outgoing {
    std::uint32_t chunk = 0;
    std::uint32_t size = 0;
    std::uint8_t step = 0;  ///< as wire::DataHeader's
    const std::byte* bytes = nullptr;
    const std::uint32_t* crc = nullptr;  ///< nullptr: it is not known yet
  };
  [[nodiscard]] Outgoing outgoing_of(const DirectOp& op, std::uint16_t rank,
                                     std::uint32_t index) const noexcept;
  enum class Sent : std::uint8_t { kYes, kNothing, kBlocked };
  Sent send_to(std::uint16_t rank, TimeNs now, Outbox& out) noexcept;
  Sent send_contribution(std::uint16_t rank, TimeNs now, OutboxSide& box) noexcept;
  void said_by(std::uint16_t rank, PathIndex path) noexcept;
  bool send_receipt(std::uint16_t rank, wire::PacketType type, TimeNs now,
                    OutboxSide& box) noexcept;

  const ShardConfig& config_;
  PeerLinks& links_;
  const PacketBuffers& buffers_;
  OpTable& ops_;
  FoldQueue& folds_;
  ShardCounters& counters_;
  const bool at_once_;
  std::vector<DirectPeer> peers_;        ///< [all_ranks()]; of this rank nothing
  ZeroedArray<std::byte> early_memory_;  ///< of their early places
  std::uint32_t early_held_ = 0;
  /// take_ahead() goes on at that rank, as long as it is asked for the same op.
  std::uint64_t ahead_op_ = 0;
  std::uint16_t ahead_from_ = 0;
  std::optional<Ahead> oldest_held_;  ///< as long as no contribution that is held came or went
  DirectScratch scratch_;
  /// Addresses of the sources of folds, each [nranks]; of the first free_count_ of free_ none is
  /// in use.
  std::vector<const std::byte*> sources_;
  std::vector<std::uint16_t> free_;
  std::uint32_t free_count_ = 0;
  std::uint32_t in_backend_ = 0;         ///< entries of all ops
  bool has_more_ = false;                ///< there are entries for which there was no place
  std::vector<std::uint16_t> partners_;  ///< ranks with which this one has to do in a gathered op
  std::vector<std::uint16_t> others_;    ///< all others, the next one first; those that have no
                                         ///< members last
  FixedQueue<std::uint16_t> queue_;      ///< ranks to which something goes
  std::uint32_t turn_packets_ = 0;       ///< that went to the first of them in its turn
  std::uint32_t sent_last_ = 0;          ///< in the last run()
  Sweep<std::uint16_t> watched_;         ///< ranks that may have something due
  bool post_waits_ = false;
  bool leaving_ = false;
};

}  // namespace gradwire::collective
