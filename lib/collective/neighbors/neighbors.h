// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The ranks with which this one forms a group, and the links to them: the next rank of the ring
/// and the one before; for a rank without members the rank on which it hangs, and the other way
/// round. They greet each other, ping, and tell of an abort and of leaving. Data of the ring goes
/// by the same links; what it means is the ring's.
///
/// Hello: repeated to the rank that data goes to until it is answered. A rank is answered by the
/// path by which its hello came, from one source port after the other until it says that it hears.
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
#include <array>
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
  /// Of one that has left: up to which op it was done.
  [[nodiscard]] std::uint64_t left_after_op_seq(LinkIndex link) const noexcept {
    return neighbors_[link].left_after_op_seq;
  }
  [[nodiscard]] TimeNs silence_ns(LinkIndex link) const noexcept {
    return neighbors_[link].silence_ns;
  }
  [[nodiscard]] const Unfit& unfit(LinkIndex link) const noexcept { return neighbors_[link].unfit; }
  /// Whether hellos were exchanged with all.
  [[nodiscard]] bool all_open() const noexcept;
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
      if (header.token != address.tokens.from && !planted(PlantedBug::kTokenNotChecked)) {
        return {wire::Drop::kToken};
      }
      return {wire::Drop::kNone, address.index, path};
    }
    return {.link = kNoLink};
  }
  /// A packet came from there.
  void heard(LinkIndex link) noexcept { neighbors_[link].silence_ns = 0; }
  void heard_from(std::uint16_t rank) noexcept;
  /// Whether a hello is of this group, from the rank and the daemon at the other end.
  [[nodiscard]] bool is_of(LinkIndex link, const wire::HelloBody& hello) const noexcept;
  /// Whether a hello from that source port waits for its answer: another one gets none of its own.
  [[nodiscard]] bool is_to_answer(LinkIndex link, PathIndex path,
                                  std::uint8_t source) const noexcept {
    return (neighbors_[link].greetings[path].unanswered >> source & 1) != 0;
  }
  /// A hello of which is_of() is true.
  /// @param path  by which it came.
  /// @return why the group cannot form.
  [[nodiscard]] Cause on_hello(LinkIndex link, const wire::HelloBody& hello, PathIndex path,
                               TimeNs now) noexcept;
  /// Likewise the answer to one of this rank's.
  [[nodiscard]] Cause on_hello_ack(LinkIndex link, const wire::HelloBody& hello,
                                   PathIndex path) noexcept;
  /// Why the group does not form: what came from a neighbor's address and does not fit.
  void on_other_version(const wire::IpAddress& source, std::uint8_t version) noexcept;
  void on_other_group(const wire::IpAddress& source, const GroupKey& key) noexcept;
  void on_unfit_hello(const wire::IpAddress& source, std::uint16_t says_rank) noexcept;
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
  /// Byes and hellos are answered no more: they get to hear of the abort instead.
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
  /// Whether a hello, a bye or a packet after an abort waits for its answer: it goes in the next
  /// round, or later if it finds no room.
  [[nodiscard]] bool owes_answers() const noexcept {
    return std::any_of(neighbors_.begin(), neighbors_.end(), [](const Neighbor& neighbor) {
      return neighbor.hello_acks_wanted != 0 || neighbor.heard_source != 0 ||
             neighbor.bye_ack_wanted || neighbor.abort_reply_wanted;
    });
  }
  [[nodiscard]] bool owes_probes() const noexcept;
  void fill(ShardStatus& status) const noexcept;
  /// If one that pings alone was heard longer ago than who is there already.
  void fill_least_heard(ShardStatus& status) const noexcept;

  // Sending.
  [[nodiscard]] bool greets_anyone() const noexcept;
  bool greet(Outbox& out) noexcept;
  void answer_hellos(TimeNs now, Outbox& out) noexcept;
  void answer_byes(const wire::ByeBody& done, Outbox& out) noexcept;
  bool send_byes(const wire::ByeBody& done, Outbox& out) noexcept;
  /// Whether every one has this rank's bye, or has left itself.
  [[nodiscard]] bool all_byes_known() const noexcept;
  void send_aborts(const AbortReason& reason, Outbox& out) noexcept;
  void answer_after_abort(const AbortReason& reason, Outbox& out) noexcept;
  /// Whether all know of the abort, or cannot: they left, or are the one that fell silent.
  [[nodiscard]] bool all_know_of(const AbortReason& abort) const noexcept;
  /// @param heard  wire::HelloBody::heard_source
  /// @return whether there was room for it.
  bool send_hello(LinkIndex link, wire::PacketType type, PathChoice::Way way, std::uint8_t heard,
                  Outbox& out) noexcept;
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
  struct Neighbor {
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
  [[nodiscard]] Cause table_differs(LinkIndex link, const wire::HelloBody& hello) const noexcept;
  void take_first(LinkIndex link, const wire::HelloBody& answer, PathIndex path) noexcept;
  bool answer_path(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept;
  bool answer_first(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept;
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
  std::uint32_t hellos_sent_ = 0;
};

}  // namespace gradwire::collective
