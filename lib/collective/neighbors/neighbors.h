// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The ranks with which this one forms a group, and the links to them: the next rank of the ring
/// and the one before; for a rank without members the rank on which it hangs, and the other way
/// round. They ping, and tell of an abort and of leaving; how they greet each other is for
/// Greetings to know. Data of the ring goes by the same links; what it means is the ring's.
///
/// By the quiet link of a group for transfers alone nothing goes but greetings, aborts and byes:
/// whether its rank lives is asked by those who wait for it (PeerLinks).
///
/// Ping: whoever has sent nothing for a ping interval sends one, and it is acknowledged like data.
/// So each side hears the other. Silence adds up only over the rounds in which this lane polls: a
/// lane that was paused must not take its own pause for its neighbor's.
///
/// Abort and bye: told by all paths, and again until they are answered. Membership says when.
///
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/abort_reason.h"
#include "base/planted_bug.h"
#include "collective/links/link.h"
#include "collective/links/packet_source.h"
#include "collective/membership/group.h"
#include "collective/membership/stall_watch.h"
#include "collective/ops/op_table.h"
#include "collective/ring/posted_words.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class Neighbors {
 public:
  using Cause = std::optional<AbortReason>;

  /// All of them outlive it.
  Neighbors(const ShardConfig& config, const Group& group, const PacketBuffers& buffers,
            OpTable& ops, ShardCounters& counters);

  [[nodiscard]] const Links& links() const noexcept { return links_; }
  [[nodiscard]] LinkIndex count() const noexcept { return static_cast<LinkIndex>(links_.size()); }
  [[nodiscard]] Link& link(LinkIndex index) const noexcept { return *links_[index]; }

  // Who they are, and whether they are there.
  [[nodiscard]] bool has(std::uint16_t rank) const noexcept;
  /// Whether the rank is one whose silence is judged here: no more than pings may come from it.
  [[nodiscard]] bool judges_silence_of(std::uint16_t rank) const noexcept;
  [[nodiscard]] bool has_left(LinkIndex link) const noexcept { return neighbors_[link].left; }
  [[nodiscard]] bool rank_has_left(std::uint16_t rank) const noexcept;
  [[nodiscard]] bool someone_left() const noexcept;
  /// Up to which op a neighbor was done that has left.
  [[nodiscard]] std::uint64_t left_after_op_seq(LinkIndex link) const noexcept {
    return neighbors_[link].left_after_op_seq;
  }
  /// Whether all chunks that went to neighbors are acknowledged.
  [[nodiscard]] bool all_acknowledged() const noexcept;

  // Packets.
  /// Whose a packet of this group's tag is; `link` is kNoLink if its rank is none of them.
  [[nodiscard]] PacketSource source_of(const wire::CommonHeader& header,
                                       const wire::IpAddress& source) const noexcept {
    for (const auto& link : links_) {
      const LinkAddress& address = link->end.address();
      if (address.rank != header.from_rank) continue;
      const PathIndex path = link->end.path_from(source);
      if (path == kNoPath) return {wire::Drop::kForeign};
      // A source address can be forged.
      if (const wire::Drop drop = link->end.check(header); drop != wire::Drop::kNone) return {drop};
      return {wire::Drop::kNone, address.index, path, link->end.seals()};
    }
    return {.link = kNoLink};
  }
  /// A packet came from there.
  void heard(LinkIndex link) noexcept { neighbors_[link].silence_ns = 0; }
  void heard_from(std::uint16_t rank) noexcept;
  /// @return whether it had not come before. If it had, it is acknowledged again all the same.
  bool on_ping(LinkIndex link, const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept;
  /// Its first bye.
  void on_bye(LinkIndex link, const wire::ByeBody& bye) noexcept;
  void answer_bye(LinkIndex link) noexcept { neighbors_[link].bye_ack_wanted = true; }
  void on_bye_ack(LinkIndex link) noexcept { neighbors_[link].bye_acked = true; }
  /// It tells of an abort, so it knows of one.
  void on_abort(LinkIndex link) noexcept { neighbors_[link].aborted = true; }
  /// Any packet that comes after an abort.
  void on_packet_after_abort(LinkIndex link, wire::PacketType type, TimeNs now) noexcept;

  // Changes of the state.
  void on_formed(TimeNs now) noexcept;
  /// Byes are answered no more: they get to hear of the abort instead.
  void on_aborted() noexcept;
  /// The way to a rank's address has changed.
  void lead_to(std::uint16_t rank, const wire::IpAddress& ip,
               const wire::FrameTemplate& frame) noexcept;
  /// Nothing was sent before `now`: pings count from there.
  void quiet_from(TimeNs now) noexcept;
  void drop_all() noexcept;

  // Time.
  /// @param round  time that this lane has polled since the last call, while formed.
  /// @return who fell silent.
  [[nodiscard]] Cause silent(TimeNs round) noexcept;
  /// Retransmission timers. @return whether one was due.
  bool run_timers(TimeNs now, StallWatch& stall) noexcept {
    bool due = false;
    for (const auto& link : links_) {
      if (!link->gets_data() || link->sender().transport().deadline() > now) continue;
      if (link->sender().on_deadline(now).acknowledged) stall.moved(now);
      due = true;
    }
    return due;
  }
  /// Earliest time at which something of the links is due.
  [[nodiscard]] TimeNs deadline() const noexcept;
  /// Whether a bye or a packet after an abort waits for its answer: it goes in the next round, or
  /// later if it finds no room.
  [[nodiscard]] bool owes_answers() const noexcept {
    return std::any_of(neighbors_.begin(), neighbors_.end(), [](const Neighbor& neighbor) {
      return neighbor.bye_ack_wanted || neighbor.abort_reply_wanted;
    });
  }
  [[nodiscard]] bool owes_probes() const noexcept;
  void fill(ShardStatus& status) const noexcept;
  /// If one that pings alone was heard longer ago than who is there already.
  void fill_least_heard(ShardStatus& status) const noexcept;

  // Sending.
  void answer_byes(const wire::ByeBody& done, Outbox& out) noexcept;
  bool send_byes(const wire::ByeBody& done, Outbox& out) noexcept;
  /// Whether every one has this rank's bye, or has left itself.
  [[nodiscard]] bool all_byes_known() const noexcept;
  void send_aborts(const AbortReason& reason, Outbox& out) noexcept;
  void answer_after_abort(const AbortReason& reason, Outbox& out) noexcept;
  /// Whether all know of the abort, or cannot: they left, or are the one that fell silent.
  [[nodiscard]] bool all_know_of(const AbortReason& abort) const noexcept;
  /// Probes, what was lost, and what waits.
  bool send_waiting(TimeNs now, Outbox& out) noexcept {
    bool worked = false;
    for (const auto& link : links_) {
      if (!link->gets_data() || !link->end.answered()) continue;
      LinkSender& to = link->sender();
      OutboxSide& box = link->end.side(out);
      if (to.wants_probes()) to.send_probes(now, box);
      worked |= to.send_lost(now, box);
      worked |= to.send_ready(now, box);
    }
    return worked;
  }
  /// What has come to wait since, and pings.
  /// @param more_to_go  chunks wait for a grant, or for credit.
  bool send_rest(bool more_to_go, TimeNs now, Outbox& out) noexcept;
  /// @param words  gives the PostedWords that acknowledgements say, if one is due.
  /// @param idle   no packet came in this round.
  template <class Words>
  bool send_acks(Words&& words, bool idle, TimeNs now, Outbox& out) noexcept {
    bool worked = false;
    for (const auto& link : links_) {
      if (!link->brings_data()) continue;
      LinkReceiver& from = link->receiver();
      OutboxSide& box = link->end.ack_side(out);
      if (!from.owes_ack(idle, now, box) || !from.send_ack(words(), ops_, now, box)) continue;
      ++counters_.acks_sent;
      worked = true;
    }
    return worked;
  }

 private:
  struct Neighbor {
    bool left = false;            ///< its bye came
    bool bye_acked = false;       ///< it has our bye
    bool aborted = false;         ///< it told us of an abort, so it knows of one
    bool bye_ack_wanted = false;  ///< answers that are to be sent
    bool abort_reply_wanted = false;
    std::uint64_t left_after_op_seq = 0;
    TimeNs silence_ns = 0;  ///< counted only while this lane polls
    TimeNs next_abort_reply = 0;
    std::uint32_t last_words = 0;  ///< byes and aborts: each tries other source ports
  };

  [[nodiscard]] LinkEnd& end(LinkIndex link) const noexcept { return links_[link]->end; }
  bool send_abort(LinkIndex link, const AbortReason& reason, Outbox& out) noexcept;
  bool send_bye(LinkIndex link, wire::PacketType type, const wire::ByeBody& bye,
                Outbox& out) noexcept;
  template <class Encode>
  bool send_by_all(LinkIndex link, Outbox& out, Encode&& encode) noexcept;

  const ShardConfig& config_;
  const Group& group_;
  const OpTable& ops_;
  ShardCounters& counters_;
  Links links_;
  std::vector<Neighbor> neighbors_;  ///< by link
};

}  // namespace gradwire::collective
