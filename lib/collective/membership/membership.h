// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A shard's part in its group: how it begins and ends, and what it misses when a neighbor leaves.
/// What goes to neighbors, and how, is for Neighbors and Greetings to know.
///
/// Forming: each rank repeats its hello to the rank that its data goes to until its hello-ack
/// comes; a shard is formed when all its links are open. Both are as long as a full packet.
///
/// Abort: the first cause wins; it is told to all neighbors, and they tell theirs, this rank too:
/// a neighbor that did so knows. Until then it is told again and again, at the ping's interval at
/// least, since it would take silence here for a death. A rank is not closed before all know, or
/// cannot (they left, or are the ones that fell silent), the leave limit apart.
///
/// Leave: when nothing is unacknowledged, a bye says up to which op everything is finished here.
/// It is repeated until it is answered; a neighbor that left is no longer listened for. A rank
/// without members leaves when the rank does on which it hangs, and not before.
///
/// It finds causes to abort and returns them; its shard aborts, since that frees what others hold.
/// One lane owns it; it allocates nothing; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/abort_reason.h"
#include "collective/event_queue.h"
#include "collective/membership/group.h"
#include "collective/neighbors/greetings.h"
#include "collective/neighbors/neighbors.h"
#include "collective/off_ring/off_ring.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class Membership {
 public:
  using Cause = std::optional<AbortReason>;

  /// All of them outlive it.
  Membership(const ShardConfig& config, Group& group, Neighbors& neighbors, Greetings& greetings,
             const OpTable& ops, const FoldQueue& folds, const OffRing& off_ring,
             EventQueue& events);

  /// How often the neighbors were told of the abort.
  [[nodiscard]] std::uint32_t aborts_sent() const noexcept { return aborts_sent_; }
  /// Why the group was aborted.
  [[nodiscard]] const AbortReason& reason() const noexcept { return reason_; }

  void start(TimeNs now) noexcept;
  /// @return whether it was live: then nothing here may be held any longer.
  bool abort(const AbortReason& reason, TimeNs now) noexcept;
  [[nodiscard]] Cause leave(TimeNs now) noexcept;
  /// A rank without members leaves when the rank does on which it hangs.
  [[nodiscard]] bool wants_to_leave() const noexcept { return leave_wanted_; }

  // Packets.
  /// A hello of a neighbor's: see Greetings::is_of().
  [[nodiscard]] Cause on_hello(LinkIndex link, const wire::HelloBody& hello, bool is_answer,
                               PathIndex path, TimeNs now) noexcept;
  /// Its first bye. @return what is wrong with it: it misses an op.
  [[nodiscard]] Cause on_bye(LinkIndex link, const wire::ByeBody& bye, TimeNs now) noexcept;
  /// Byes say so of the ops that are finished here.
  void note_posted_by_all(std::uint64_t op_seq) noexcept { posted_by_all_ = op_seq; }

  // Time.
  /// Sends what is due; closes.
  bool run(TimeNs now, Outbox& out) noexcept;
  /// After run(): whether the group should have formed long since.
  [[nodiscard]] Cause overdue(TimeNs now) const noexcept;
  /// Whether a neighbor that left misses an op that was posted here.
  [[nodiscard]] Cause missed_by_who_left() const noexcept;
  /// Earliest time at which run() has something to do without a packet; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now, TimeNs soon) const noexcept;

 private:
  [[nodiscard]] bool ring_acknowledged() const noexcept;
  [[nodiscard]] bool all_acknowledged() const noexcept;
  [[nodiscard]] TimeNs last_words_at() const noexcept;
  [[nodiscard]] bool may_say_bye(TimeNs now) const noexcept;
  [[nodiscard]] Cause missed_by(LinkIndex link) const noexcept;
  [[nodiscard]] Cause left_alone_by(LinkIndex link) const noexcept;
  /// Whether one that does not know of the abort may still be about to join.
  [[nodiscard]] bool may_join(TimeNs now) const noexcept;
  void become_formed_if_ready(TimeNs now) noexcept;
  bool greet(TimeNs now, Outbox& out) noexcept;
  bool run_aborted(TimeNs now, Outbox& out) noexcept;
  bool run_leaving(TimeNs now, Outbox& out) noexcept;
  void close() noexcept;
  [[nodiscard]] wire::ByeBody bye() const noexcept;

  const ShardConfig& config_;
  Group& group_;
  Neighbors& neighbors_;
  Greetings& greetings_;
  const OpTable& ops_;
  const FoldQueue& folds_;
  const OffRing& off_ring_;
  EventQueue& events_;
  const bool hangs_ = std::any_of(neighbors_.links().begin(), neighbors_.links().end(),
                                  [](const auto& link) { return link->to_host(); });
  AbortReason reason_;
  TimeNs started_at_ = 0;
  TimeNs next_hello_ = 0;
  bool leave_wanted_ = false;
  TimeNs leave_deadline_ = kNever;
  TimeNs next_bye_ = 0;
  std::uint64_t posted_by_all_ = 0;
  bool bye_sent_ = false;
  TimeNs close_at_ = kNever;
  bool abort_event_wanted_ = false;
  std::uint32_t aborts_sent_ = 0;
  TimeNs next_abort_ = kNever;
};

}  // namespace gradwire::collective
