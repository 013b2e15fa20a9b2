// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What goes between any two ranks of a group: direct ops and transfers. It owns both, and nobody
/// else knows which of them a group has. Packets go to the one that they are of, each hears of
/// whoever the other heard, and where a port is full they take turns.
///
/// Members post ops by themselves. At a rank without members, which has no transfers, ToldOps posts
/// what others tell of. One lane owns it; it allocates at construction only; time is a
/// parameter.
///
///   off_ring.cc            which of them
///   off_ring_direct.cc     contributions, and folds when all is there
///   off_ring_tiles.cc      ops by tiles
///   off_ring_transfers.cc  transfers between processes
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collective/direct/direct.h"
#include "collective/links/peer_links.h"
#include "collective/links/port_turns.h"
#include "collective/links/pull_window.h"
#include "collective/links/told_order.h"
#include "collective/membership/group.h"
#include "collective/membership/stall_watch.h"
#include "collective/neighbors/neighbors.h"
#include "collective/off_ring/told_ops.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_ends.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "collective/shard_services.h"
#include "collective/shard_status.h"
#include "collective/tiles/tiles.h"
#include "collective/transfers/transfers.h"
#include "wire/packet.h"

namespace gradwire::collective {

class OffRing {
 public:
  /// All of them outlive it.
  /// @param told  whether ops are posted when others tell of them: the rank has no members.
  OffRing(const ShardConfig& config, const Group& group, Neighbors& neighbors, const PeerEnds& ends,
          const PacketBuffers& buffers, OpTable& ops, FoldQueue& folds, OpEnds& op_ends,
          StallWatch& stall, ShardServices& services, ShardCounters& counters, bool told);
  // Its parts refer to each other.
  OffRing(const OffRing&) = delete;
  OffRing& operator=(const OffRing&) = delete;

  // Ops and transfers that are posted.
  /// Whether there is scratch memory for the op, if it needs any: Direct::admit().
  [[nodiscard]] bool admit(const OpPlan& plan, const OpSpec& spec) noexcept {
    return !direct_ || direct_->admit(plan, spec);
  }
  /// An op of whatever shape was posted: takes what came ahead of it.
  void on_posted(Op& op, const OpPlan& plan, TimeNs now) noexcept;
  [[nodiscard]] PostResult post(const TransferSpec& spec, TimeNs now) noexcept;
  /// @return whether `out` is the end of a transfer, or tells the size of one.
  [[nodiscard]] bool pop_done(Event& out) noexcept;
  /// Whether a transfer is unfinished here; with a rank.
  [[nodiscard]] bool has_transfers() const noexcept {
    return transfers_ && transfers_->unfinished();
  }
  /// Whether packets come though no op is unfinished here.
  [[nodiscard]] bool expects_packets() const noexcept {
    return has_transfers() || (tiles_ && !tiles_->idle());
  }
  [[nodiscard]] bool has_transfers_with(std::uint16_t rank) const noexcept {
    return transfers_ && transfers_->unfinished_with(rank);
  }
  /// Whether no rank needs anything of this one any more.
  [[nodiscard]] bool idle() const noexcept {
    return (!direct_ || direct_->scratch().empty()) && (!transfers_ || transfers_->idle()) &&
           (!tiles_ || tiles_->idle());
  }

  // Packets.
  /// Whether packets of that type are taken from that rank. Else they are foreign.
  [[nodiscard]] bool takes(const wire::CommonHeader& header) const noexcept {
    if (wire::is_of_tiles(header.type)) {
      // Nothing goes from one rank without members to another.
      const std::uint16_t senders = told_ ? config_.nranks : config_.all_ranks();
      return tiles_ && header.from_rank < senders;
    }
    return wire::is_of_transfer(header.type) ? transfers_ && header.from_rank < config_.nranks
                                             : direct_.has_value();
  }
  /// One that is taken, of a peer: PeerEnds::source_of(), while the group is live.
  [[nodiscard, gnu::noinline]] wire::Drop receive(const wire::Packet& packet, bool ecn_ce,
                                                  TimeNs now) noexcept;
  /// A packet came from the rank that is of none of its parts.
  void hear(std::uint16_t rank) noexcept { links_.hear(rank); }
  /// The rank said bye: it has all that it needs of ops up to that one.
  void on_left(std::uint16_t rank, std::uint64_t completed_op_seq, TimeNs now) noexcept;
  /// The way to the rank has changed.
  void probe_at_once(std::uint16_t rank) noexcept;

  // Folds.
  /// The backend has done a work of FoldWork::Role::kDirect.
  void on_folded(const Folded& done, TimeNs now) noexcept;
  /// Places of the fold queue are free again.
  void refill() noexcept;

  // Time.
  void count(TimeNs round) noexcept { links_.count(round); }
  /// Once a round, before what goes round the ring. @return whether it did anything.
  bool run(TimeNs now, Outbox& out) noexcept;
  /// After the ring, whose room comes first.
  bool run_last(TimeNs now, Outbox& out) noexcept;
  /// Earliest time at which a run has something to do without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;
  void fill(ShardStatus& status) const noexcept;
  /// Nothing more will be posted.
  void leave() noexcept;
  /// The group ended here.
  void drop_all() noexcept;

 private:
  [[nodiscard]] bool live() const noexcept { return group_.live(); }
  bool run_direct(TimeNs now, Outbox& out) noexcept;
  bool run_late(LateUser& user, TimeNs now, Outbox& out) noexcept;
  /// Ends the group if a rank was found silent, unless its neighbors on the ring judge that.
  void judge_silence(TimeNs now) noexcept;
  void tell_of_silence(AbortReason& reason, const PeerSilence& silent) const noexcept;

  // off_ring_direct.cc: if there are direct ops
  void start(Op& op, TimeNs now) noexcept;
  void apply_ahead(std::uint64_t op_seq, TimeNs now) noexcept;
  void note_progress(Op& op, Direct::Progress progress, TimeNs now) noexcept;
  void count_done(const Op& op) noexcept;
  void abort_for_fold(std::uint64_t op_seq, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_direct(const wire::Packet& packet, bool ecn_ce,
                                          TimeNs now) noexcept;
  /// @param crc  of the payload; none if it is known to be right.
  [[nodiscard]] wire::Drop take_contribution(std::uint16_t rank, const wire::DataHeader& header,
                                             std::span<const std::byte> payload,
                                             std::optional<std::uint32_t> crc, TimeNs now) noexcept;
  void report_mismatch(std::uint16_t rank, std::uint64_t op_seq, const OpCall& ours,
                       const OpCall& theirs, TimeNs now) noexcept;

  // off_ring_tiles.cc: if there are ops by tiles
  /// Ends ops that are done, and the group if calls differ or a fold failed.
  void settle_tiles(TimeNs now) noexcept;
  void fill_tiles(ShardStatus& status) const noexcept;

  // off_ring_transfers.cc: if there are transfers
  /// Ends the group if the ends of a transfer differ.
  void judge_transfers(TimeNs now) noexcept;

  const ShardConfig& config_;
  const Group& group_;
  Neighbors& neighbors_;
  const PeerEnds& ends_;
  OpTable& ops_;
  OpEnds& op_ends_;
  StallWatch& stall_;
  ShardServices& services_;
  ShardCounters& counters_;
  PeerLinks links_;
  ToldOrder told_order_;
  std::optional<Direct> direct_;        ///< none: no op is direct
  std::optional<PullWindow> window_;    ///< of all that pull chunks; none: nobody does
  std::optional<Transfers> transfers_;  ///< none: there are none
  std::optional<Tiles> tiles_;          ///< none: no op goes by tiles
  std::optional<ToldOps> told_;         ///< of a rank without members
  PortTurns turns_;                     ///< of what goes after the ring
};

}  // namespace gradwire::collective
