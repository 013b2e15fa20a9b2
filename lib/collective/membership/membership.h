// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A shard's part in its group: how it begins and ends, and who was lost.
///
/// Forming: each rank repeats its hello to the rank that its data goes to until its hello-ack
/// comes; a shard is formed when all its links are open. Both are as long as a full packet.
///
/// Silence: a rank sends data or pings, the other acknowledges them, so each side hears the other
/// within a ping interval. Silence adds up only over the rounds in which this lane polls: a lane
/// that was paused must not take its own pause for its neighbour's.
///
/// Abort: the first cause wins; it is told to all neighbours, and they tell theirs, this rank too:
/// a neighbour that did so knows. Until then it is told again and again, at the ping's interval at
/// least, since it would take silence here for a death. A rank is not closed before all know, or
/// cannot (they left, or are the ones that fell silent), the leave limit apart.
///
/// Leave: when nothing is unacknowledged, a bye says up to which op everything is finished here.
/// It is repeated until it is answered; a neighbour that left is no longer listened for. A rank
/// without members leaves when the rank does on which it hangs, and not before.
///
/// It finds causes to abort and returns them; its shard aborts, since that frees what others hold.
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/abort_reason.h"
#include "collective/direct/direct.h"
#include "collective/event_queue.h"
#include "collective/links/link.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "collective/transfers/transfers.h"

namespace gradwire::collective {

class Membership {
 public:
  using Cause = std::optional<AbortReason>;

  Membership(const ShardConfig& config, const Links& links, const OpTable& ops,
             const FoldQueue& folds, const Direct* direct, const Transfers* transfers,
             EventQueue& events);

  [[nodiscard]] ShardState state() const noexcept { return state_; }
  /// Whether packets and ops are taken: forming, formed or leaving.
  [[nodiscard]] bool live() const noexcept {
    return state_ == ShardState::kForming || state_ == ShardState::kFormed ||
           state_ == ShardState::kLeaving;
  }
  /// How often the neighbours were told of the abort.
  [[nodiscard]] std::uint32_t aborts_sent() const noexcept { return aborts_sent_; }
  /// Why the group was aborted.
  [[nodiscard]] const AbortReason& reason() const noexcept { return reason_; }
  [[nodiscard]] TimeNs silence_ns(LinkIndex link) const noexcept {
    return neighbours_[link].silence_ns;
  }
  [[nodiscard]] bool has_left(LinkIndex link) const noexcept { return neighbours_[link].left; }

  void start(TimeNs now) noexcept;
  /// @return whether it was live: then nothing here may be held any longer.
  bool abort(const AbortReason& reason, TimeNs now) noexcept;
  [[nodiscard]] Cause leave(TimeNs now) noexcept;

  // Packets.
  /// Whether a hello is of this group, from the rank and the daemon at the other end.
  [[nodiscard]] bool is_neighbour(LinkIndex link, const wire::HelloBody& hello) const noexcept;
  /// @param path  by which it came.
  [[nodiscard]] Cause on_hello(LinkIndex link, const wire::HelloBody& hello, bool is_answer,
                               PathIndex path, TimeNs now) noexcept;
  void on_other_version(const wire::IpAddress& source, std::uint8_t version) noexcept;
  /// A hello of a group that is not this one: of another epoch of it, perhaps.
  void on_other_group(const wire::IpAddress& source, const GroupKey& key) noexcept;
  /// A hello of this group, from a neighbour's address, whose rank or token is not that link's.
  void on_unfit_hello(const wire::IpAddress& source, std::uint16_t says_rank) noexcept;
  /// Whether a hello from that source port waits for its answer: another one gets none of its own.
  [[nodiscard]] bool is_to_answer(LinkIndex link, PathIndex path,
                                  std::uint8_t source) const noexcept {
    return (neighbours_[link].greetings[path].unanswered >> source & 1) != 0;
  }
  [[nodiscard]] const Unfit& unfit(LinkIndex link) const noexcept {
    return neighbours_[link].unfit;
  }
  /// Its first bye. @return what is wrong with it: it misses an op.
  [[nodiscard]] Cause on_bye(LinkIndex link, const wire::ByeBody& bye, TimeNs now) noexcept;
  /// Its byes say so of the ops that are finished here.
  void note_posted_by_all(std::uint64_t op_seq) noexcept { posted_by_all_ = op_seq; }
  void answer_bye(LinkIndex link) noexcept { neighbours_[link].bye_ack_wanted = true; }
  void on_bye_ack(LinkIndex link) noexcept { neighbours_[link].bye_acked = true; }
  /// Of a rank without members: it leaves when the rank does on which it hangs.
  [[nodiscard]] bool wants_to_leave() const noexcept { return leave_wanted_; }
  /// Before abort() with what it tells.
  void on_abort(LinkIndex link) noexcept { neighbours_[link].aborted = true; }
  /// Any packet that comes after an abort.
  void on_packet_after_abort(LinkIndex link, const wire::Packet& packet, TimeNs now) noexcept;
  /// The neighbour is there.
  void heard(LinkIndex link) noexcept { neighbours_[link].silence_ns = 0; }

  /// @param heard  wire::HelloBody::heard_source
  /// @return whether there was room for it.
  bool send_hello(LinkIndex link, wire::PacketType type, PathChoice::Way way, std::uint8_t heard,
                  Outbox& out) noexcept;

  // Time.
  /// @param round  time that this lane has polled since the last call, while formed.
  [[nodiscard]] Cause silent(TimeNs round) noexcept;
  /// Sends what is due; closes.
  bool run(TimeNs now, Outbox& out) noexcept;
  /// After run(): whether the group should have formed long since.
  [[nodiscard]] Cause overdue(TimeNs now) const noexcept;
  /// Whether a neighbour that left misses an op that was posted here.
  [[nodiscard]] Cause missed_by_who_left() const noexcept;
  [[nodiscard]] std::uint64_t left_after_op_seq(LinkIndex link) const noexcept {
    return neighbours_[link].left_after_op_seq;
  }
  /// Earliest time at which run() has something to do without a packet; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now, TimeNs soon) const noexcept;

 private:
  /// Hellos that came by a path.
  struct Greetings {
    std::uint64_t unanswered = 0;  ///< by wire::HelloBody::source, a bit each
    std::uint8_t first = 0;        ///< of these, the one that came first
    std::uint8_t answers = 0;      ///< from how many source ports they were answered, in turn
    bool heard = false;            ///< the last one says that an answer was
    TimeNs last = 0;
    TimeNs next_answer = 0;  ///< if the port is behind
    /// What the path's own source port has answered, while another one finds no room.
    std::optional<std::uint8_t> own_answered;
  };
  struct Neighbour {
    bool left = false;                    ///< its bye came
    bool bye_acked = false;               ///< it has our bye
    bool aborted = false;                 ///< it told us of an abort, so it knows of one
    std::uint32_t hello_acks_wanted = 0;  ///< paths by which hellos are to be answered, a bit each
    std::array<Greetings, kPathsMax> greetings{};
    std::uint8_t heard_source = 0;  ///< not its first, and a hello is to tell it; as HelloBody's
    bool bye_ack_wanted = false;    ///< answers that are to be sent
    bool abort_reply_wanted = false;
    Unfit unfit;
    std::uint64_t left_after_op_seq = 0;
    TimeNs silence_ns = 0;  ///< counted only while this lane polls
    TimeNs next_abort_reply = 0;
    std::uint32_t last_words = 0;  ///< byes and aborts: each tries other source ports
  };

  [[nodiscard]] LinkEnd& end(LinkIndex link) const noexcept { return links_[link]->end; }
  /// Whether hellos go there: until they are answered.
  [[nodiscard]] bool greets(LinkIndex link) const noexcept;
  [[nodiscard]] bool greets_anyone() const noexcept;
  [[nodiscard]] bool ring_acknowledged() const noexcept;
  [[nodiscard]] bool all_acknowledged() const noexcept;
  [[nodiscard]] TimeNs last_words_at() const noexcept;
  [[nodiscard]] bool may_say_bye(TimeNs now) const noexcept;
  [[nodiscard]] bool knows_of_abort(LinkIndex link) const noexcept;
  [[nodiscard]] Cause missed_by(LinkIndex link) const noexcept;
  [[nodiscard]] Cause left_alone_by(LinkIndex link) const noexcept;
  /// Whether one that does not know of the abort may still be about to join.
  [[nodiscard]] bool may_join(TimeNs now) const noexcept;
  [[nodiscard]] Cause table_differs(LinkIndex link, const wire::HelloBody& hello) const noexcept;
  void take_first(LinkIndex link, const wire::HelloBody& answer, PathIndex path) noexcept;
  void become_formed_if_ready(TimeNs now) noexcept;
  bool run_aborted(TimeNs now, Outbox& out) noexcept;
  bool run_leaving(TimeNs now, Outbox& out) noexcept;
  void close() noexcept;
  bool greet(TimeNs now, Outbox& out) noexcept;
  void answer_hellos(TimeNs now, Outbox& out) noexcept;
  bool answer_hellos(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept;
  bool answer_first(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept;
  bool send_abort(LinkIndex link, Outbox& out) noexcept;
  template <class Encode>
  bool send_by_all(LinkIndex link, Outbox& out, Encode&& encode) noexcept;
  bool send_bye(LinkIndex link, wire::PacketType type, Outbox& out) noexcept;
  [[nodiscard]] LinkIndex count() const noexcept { return static_cast<LinkIndex>(links_.size()); }

  const ShardConfig& config_;
  const Links& links_;
  const OpTable& ops_;
  const FoldQueue& folds_;
  const Direct* direct_;        ///< may be nullptr
  const Transfers* transfers_;  ///< may be nullptr
  EventQueue& events_;
  ShardState state_ = ShardState::kIdle;
  AbortReason reason_;
  std::vector<Neighbour> neighbours_;  ///< by link
  TimeNs started_at_ = 0;
  TimeNs next_hello_ = 0;
  bool leave_wanted_ = false;
  TimeNs leave_deadline_ = kNever;
  TimeNs next_bye_ = 0;
  std::uint64_t posted_by_all_ = 0;
  bool bye_sent_ = false;
  TimeNs close_at_ = kNever;
  bool abort_event_wanted_ = false;
  std::uint32_t hellos_sent_ = 0;
  std::uint32_t aborts_sent_ = 0;
  TimeNs next_abort_ = kNever;
};

}  // namespace gradwire::collective
