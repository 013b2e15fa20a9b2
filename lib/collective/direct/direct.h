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
/// Parts: DirectLayout says where what ranks give lies and what goes where, EarlyContributions
/// keeps what came too early, DirectFolds gives the backend its entries.
///
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/direct/direct_folds.h"
#include "collective/direct/direct_layout.h"
#include "collective/direct/direct_peer.h"
#include "collective/direct/direct_scratch.h"
#include "collective/direct/early_contributions.h"
#include "collective/fixed_queue.h"
#include "collective/links/packet_buffers.h"
#include "collective/links/peer_links.h"
#include "collective/links/sweep.h"
#include "collective/links/told_order.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"
#include "collective/shapes/shape.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "wire/packet.h"

namespace gradwire::collective {

class Direct final : public PeerUser {
 public:
  /// @param config  whose direct_bytes are not 0; the shard's other parts outlive it.
  Direct(const ShardConfig& config, PeerLinks& links, const PacketBuffers& buffers, OpTable& ops,
         FoldQueue& folds, ToldOrder& told_order, ShardCounters& counters);

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
  [[nodiscard]] DirectFolds& folds() noexcept { return folds_; }
  [[nodiscard]] const DirectScratch& scratch() const noexcept { return scratch_; }
  /// What comes, or came, ahead of its op.
  [[nodiscard]] EarlyContributions& early() noexcept { return early_; }

  // Packets. Their rank is that of a peer: see PeerEnds::source_of().
  /// Any of the three types came. @return whether it brought something new.
  bool hear(const wire::Packet& packet, TimeNs now) noexcept;
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
    return unacknowledged(rank) || awaited(rank, ops_.posted());
  }
  void ask(std::uint16_t rank, TimeNs now) noexcept override;
  void on_silent(std::uint16_t rank, TimeNs now) noexcept override;
  /// The first rank of which something is missing of an op; one that has not posted it goes first.
  struct Missing {
    std::uint16_t rank = 0;
    bool posted = false;  ///< there, or nobody can know: it may wait for others itself
  };
  [[nodiscard]] std::optional<Missing> missing(std::uint64_t op_seq) const noexcept;
  /// Earliest time at which run() has something to do without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept {
    return queue_.empty() ? watched_.next_due() : now;
  }
  /// The group ended here.
  void drop_all() noexcept;
  /// Nothing more will be posted: whoever stays silent is not waited for.
  void leave() noexcept { leaving_ = true; }

 private:
  // direct_ops.cc
  void start_parts(DirectOp& op, TimeNs now) noexcept;
  void before_more(std::uint16_t rank, TimeNs now) noexcept;
  void send_sums(DirectOp& op, TimeNs now) noexcept;
  /// Chunks that may go to a rank now and could not before.
  void send_more(DirectOp& op, std::uint16_t rank, std::uint64_t bits, TimeNs now) noexcept;
  void extend_reach(DirectOp& op, TimeNs now) noexcept;
  void hear_all_entered(std::uint64_t op_seq) noexcept;
  void end_phase(DirectOp& op, TimeNs now) noexcept;

  // direct.cc
  void acknowledge(std::uint16_t rank, std::uint64_t received, TimeNs now) noexcept;
  void count_ahead(std::uint16_t rank) noexcept;
  void resend_missing(std::uint16_t rank, bool all) noexcept;

  // direct_send.cc
  void queue(std::uint16_t rank) noexcept;
  void watch(std::uint16_t rank, TimeNs due) noexcept;
  [[nodiscard]] bool unacknowledged(std::uint16_t rank) const noexcept {
    const DirectPeer& peer = peers_[rank];
    const DirectOp* op = scratch_.first_to(rank, peer.received);
    return op != nullptr && (scratch_.ready(*op, rank) & ~peer.chunks) != 0;
  }
  /// Whether something is to come from there of ops up to that one.
  [[nodiscard]] bool awaited(std::uint16_t rank, std::uint64_t op_seq) const noexcept {
    return scratch_.received_from(rank, op_seq) != op_seq;
  }
  [[nodiscard]] TimeNs patience(std::uint16_t rank) const noexcept;
  [[nodiscard]] bool is_in_vain(std::uint16_t rank) const noexcept;
  [[nodiscard]] bool is_lacking(std::uint16_t rank) const noexcept;
  void look_at_watched(TimeNs now) noexcept;
  void probe(std::uint16_t rank, TimeNs now) noexcept;
  void inquire(std::uint16_t rank, TimeNs now) noexcept;
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
  ShardCounters& counters_;
  std::vector<DirectPeer> peers_;              ///< [all_ranks()]; of this rank nothing
  const std::vector<std::uint16_t> partners_;  ///< with which this one has to do in a gathered op
  const std::vector<std::uint16_t> others_;    ///< all others, the next one first; those that have
                                               ///< no members last
  EarlyContributions early_;
  DirectScratch scratch_;
  DirectLayout layout_;
  DirectFolds folds_;
  FixedQueue<std::uint16_t> queue_;  ///< ranks to which something goes
  std::uint32_t turn_packets_ = 0;   ///< that went to the first of them in its turn
  std::uint32_t sent_last_ = 0;      ///< in the last run()
  Sweep<std::uint16_t> watched_;     ///< ranks that may have something due
  bool post_waits_ = false;
  bool leaving_ = false;
};

}  // namespace gradwire::collective
