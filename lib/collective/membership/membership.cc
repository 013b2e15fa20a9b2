// SPDX-License-Identifier: BSD-3-Clause
// What changes the state: packets, time, the lane. membership_run.cc has what is sent.
#include "collective/membership/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/abort_detail.h"
#include "base/probe.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

Membership::Membership(const ShardConfig& config, const Links& links, const OpTable& ops,
                       const FoldQueue& folds, const Direct* direct, const Transfers* transfers,
                       EventQueue& events)
    : config_(config),
      links_(links),
      ops_(ops),
      folds_(folds),
      direct_(direct),
      transfers_(transfers),
      events_(events),
      neighbours_(links.size()) {}

void Membership::start(TimeNs now) noexcept {
  require(state_ == ShardState::kIdle, "a shard is started once");
  started_at_ = now;
  next_hello_ = now;
  state_ = ShardState::kForming;
  become_formed_if_ready(now);
}

void Membership::become_formed_if_ready(TimeNs now) noexcept {
  if (state_ != ShardState::kForming) return;
  for (const auto& link : links_) {
    if (!link->end.open()) return;
  }
  state_ = ShardState::kFormed;
  for (LinkIndex i = 0; i < count(); ++i) {
    neighbours_[i].silence_ns = 0;
    for (Greetings& greetings : neighbours_[i].greetings) greetings.answers = 0;
    if (links_[i]->gets_data()) links_[i]->sender().quiet_from(now);
  }
  events_.put({EventType::kFormed, 0, {}});
}

bool Membership::abort(const AbortReason& reason, TimeNs now) noexcept {
  if (!live()) return false;
  state_ = ShardState::kAborted;
  reason_ = reason;
  GRADWIRE_PROBE6(abort, config_.key.group_id, reason.op_seq, config_.rank, config_.lane,
                  static_cast<int>(reason.code), reason.culprit_rank);
  // It gets to hear of the abort instead.
  for (Neighbour& neighbour : neighbours_) {
    neighbour.bye_ack_wanted = false;
    neighbour.heard_source = 0;
  }
  abort_event_wanted_ = true;
  next_abort_ = now;
  if (leave_wanted_) leave_deadline_ = now + config_.timeouts.leave_ns;
  return true;
}

Membership::Cause Membership::leave(TimeNs now) noexcept {
  const bool hangs = config_.folds_only() && state_ == ShardState::kFormed;
  if (leave_wanted_ && !hangs) return {};
  leave_wanted_ = true;
  // One without members goes on for the others.
  if (hangs && !neighbours_[0].left) return {};
  leave_deadline_ = now + config_.timeouts.leave_ns;
  next_bye_ = now;
  const std::uint64_t unfinished = ops_.oldest_unfinished();
  const bool transfers = transfers_ != nullptr && transfers_->unfinished();
  if (state_ == ShardState::kForming ||
      (state_ == ShardState::kFormed && (unfinished != 0 || transfers))) {
    return AbortReason{.code = AbortCode::kPeerLeft,
                       .culprit_rank = config_.rank,
                       .reporter_rank = config_.rank,
                       .op_seq = unfinished};
  }
  if (state_ == ShardState::kFormed) state_ = ShardState::kLeaving;
  return {};
}

bool Membership::is_neighbour(LinkIndex link, const wire::HelloBody& hello) const noexcept {
  const LinkAddress& address = end(link).address();
  return hello.key == config_.key && hello.to_rank == config_.rank &&
         hello.from_rank == address.rank && hello.incarnation == address.incarnation;
}

Membership::Cause Membership::table_differs(LinkIndex link,
                                            const wire::HelloBody& hello) const noexcept {
  if (hello.table_digest == config_.table_digest && hello.nranks == config_.all_ranks() &&
      hello.lanes == config_.lanes && hello.payload_bytes == config_.payload_bytes) {
    return {};
  }
  AbortReason reason{.code = AbortCode::kFormation,
                     .culprit_rank = end(link).rank(),
                     .reporter_rank = config_.rank};
  std::array<char, AbortReason::kDetailBytes> text{};
  char* at = text.data();
  const auto differs = [&](const char* what, std::uint64_t there, std::uint64_t here) {
    if (there == here) return;
    const auto room = static_cast<std::size_t>(text.data() + text.size() - 1 - at);
    at = fmt::format_to_n(at, room, "{}{} {} there and {} here", at == text.data() ? "" : ", ",
                          what, there, here)
             .out;
  };
  differs("ranks", hello.nranks, config_.all_ranks());
  differs("ranks without members", hello.folding_ranks, config_.folding_ranks);
  differs("members of each rank", hello.members, config_.members_said());
  differs("lanes", hello.lanes, config_.lanes);
  differs("payload", hello.payload_bytes, config_.payload_bytes);
  if (at == text.data()) {
    format_detail(reason,
                  "its table of the group differs in an entry, their order, or in which process is "
                  "at which rank: digest {:x} there and {:x} here",
                  hello.table_digest, config_.table_digest);
  } else {
    format_detail(reason, "its table of the group differs: {}", text.data());
  }
  return reason;
}

Membership::Cause Membership::on_hello(LinkIndex link, const wire::HelloBody& hello, bool is_answer,
                                       PathIndex path, TimeNs now) noexcept {
  if (Cause cause = table_differs(link, hello)) return cause;
  neighbours_[link].silence_ns = 0;
  if (!is_answer) {
    end(link).on_hello();
    neighbours_[link].hello_acks_wanted |= 1u << path;
    Greetings& greetings = neighbours_[link].greetings[path];
    if (greetings.unanswered == 0) greetings.first = hello.source;
    greetings.unanswered |= std::uint64_t{1} << hello.source;
    // Where it asks anew, or has heard an answer, the first one goes from the path's own port.
    const bool anew =
        state_ != ShardState::kForming && now - greetings.last > config_.timeouts.silence_ns / 4;
    greetings.heard = hello.heard_source != 0;
    if (greetings.heard || anew) greetings.answers = 0;
    greetings.last = now;
  } else {
    if (!end(link).answered()) take_first(link, hello, path);
    end(link).on_hello_ack();
    if (PathChoice* const choice = links_[link]->choice()) {
      choice->on_hello_ack(path, hello.heard_source, hello.source);
    }
  }
  become_formed_if_ready(now);
  return {};
}

/// The first way that answers is taken.
void Membership::take_first(LinkIndex link, const wire::HelloBody& answer,
                            PathIndex path) noexcept {
  if (path != end(link).path()) end(link).take_path(path);
  if (answer.heard_source != 0) {
    (void)end(link).take_source(path, static_cast<std::uint8_t>(answer.heard_source - 1));
  }
  if (answer.source > 1) neighbours_[link].heard_source = answer.source;
}

void Membership::on_other_version(const wire::IpAddress& source, std::uint8_t version) noexcept {
  if (state_ != ShardState::kForming) return;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).address().ip == source) neighbours_[i].unfit.version = version;
  }
}

void Membership::on_other_group(const wire::IpAddress& source, const GroupKey& key) noexcept {
  if (state_ != ShardState::kForming || key.group_id != config_.key.group_id) return;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).path_from(source) == kNoPath) continue;
    neighbours_[i].unfit.other_epoch = true;
    neighbours_[i].unfit.epoch = key.epoch;
  }
}

void Membership::on_unfit_hello(const wire::IpAddress& source, std::uint16_t says_rank) noexcept {
  if (state_ != ShardState::kForming) return;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).path_from(source) == kNoPath) continue;
    neighbours_[i].unfit.hello = true;
    neighbours_[i].unfit.says_rank = says_rank;
  }
}

void Membership::on_packet_after_abort(LinkIndex link, const wire::Packet& packet,
                                       TimeNs now) noexcept {
  Neighbour& neighbour = neighbours_[link];
  if (packet.common.type == PacketType::kAbort) {
    neighbour.aborted = true;
    return;
  }
  // Whoever still talks to us has not heard: tell again, but never faster than this.
  if (now < neighbour.next_abort_reply) return;
  neighbour.next_abort_reply = now + config_.timeouts.hello_interval_ns;
  neighbour.abort_reply_wanted = true;
}

Membership::Cause Membership::on_bye(LinkIndex link, const wire::ByeBody& bye,
                                     TimeNs now) noexcept {
  Neighbour& neighbour = neighbours_[link];
  require(!neighbour.left, "a neighbour leaves once");
  answer_bye(link);
  neighbour.left = true;
  neighbour.left_after_op_seq = bye.completed_op_seq;
  // It was formed, so our hello came there, and it will answer none any more: the ops had nothing
  // to send.
  if (links_[link]->gets_data()) end(link).on_hello_ack();
  become_formed_if_ready(now);
  return config_.folds_only() || links_[link]->on_ring() ? missed_by(link) : left_alone_by(link);
}

/// A rank without members leaves when this one has said that it leaves: before, somebody ended it.
Membership::Cause Membership::left_alone_by(LinkIndex link) const noexcept {
  if (state_ == ShardState::kLeaving) return {};
  AbortReason reason{.code = AbortCode::kPeerLeft,
                     .culprit_rank = end(link).rank(),
                     .reporter_rank = config_.rank,
                     .op_seq = ops_.oldest_unfinished()};
  reason.set_detail("it has no members and sums for the others, and left before them");
  return reason;
}

Membership::Cause Membership::missed_by(LinkIndex link) const noexcept {
  const Neighbour& neighbour = neighbours_[link];
  if (!neighbour.left || (!links_[link]->on_ring() && !config_.folds_only())) return {};
  if (transfers_ != nullptr && transfers_->unfinished_with(end(link).rank())) {
    AbortReason reason{.code = AbortCode::kPeerLeft,
                       .culprit_rank = end(link).rank(),
                       .reporter_rank = config_.rank};
    reason.set_detail("a transfer with it is unfinished here");
    return reason;
  }
  if (ops_.oldest_unfinished() == 0 || ops_.posted() <= neighbour.left_after_op_seq) return {};
  AbortReason reason{.code = AbortCode::kPeerLeft,
                     .culprit_rank = end(link).rank(),
                     .reporter_rank = config_.rank,
                     .op_seq = ops_.oldest_unfinished()};
  format_detail(reason, "its last op was {}, here {} were posted", neighbour.left_after_op_seq,
                ops_.posted());
  return reason;
}

Membership::Cause Membership::missed_by_who_left() const noexcept {
  // Here and in silent(): whom data comes from is judged before whom it goes to.
  for (LinkIndex i = count(); i-- > 0;) {
    if (Cause cause = missed_by(i)) return cause;
  }
  return {};
}

Membership::Cause Membership::silent(TimeNs round) noexcept {
  for (LinkIndex i = count(); i-- > 0;) {
    Neighbour& neighbour = neighbours_[i];
    if (neighbour.left) continue;
    neighbour.silence_ns += round;
    if (neighbour.silence_ns < config_.timeouts.silence_ns) continue;
    return AbortReason{.code = AbortCode::kSilence,
                       .culprit_rank = end(i).rank(),
                       .reporter_rank = config_.rank,
                       .op_seq = ops_.oldest_unfinished(),
                       .duration_ns = static_cast<std::uint64_t>(neighbour.silence_ns)};
  }
  return {};
}

Membership::Cause Membership::overdue(TimeNs now) const noexcept {
  if (state_ != ShardState::kForming || now - started_at_ < config_.timeouts.formation_ns)
    return {};
  for (const auto& link : links_) {
    if (link->end.open()) continue;
    AbortReason reason{.code = AbortCode::kFormation,
                       .culprit_rank = link->end.rank(),
                       .reporter_rank = config_.rank,
                       .duration_ns = static_cast<std::uint64_t>(now - started_at_)};
    const bool unanswered = link->gets_data() && !link->end.answered();
    const char* const missing =
        unanswered ? "it did not answer our hello" : "no hello came from it";
    const Unfit& unfit = neighbours_[link->end.address().index].unfit;
    const std::uint8_t version = unfit.version;
    if (unfit.other_epoch) {
      format_detail(reason, "rank {} at {} joins epoch {} of the group, rank {} epoch {}; {}",
                    link->end.rank(), wire::to_string(link->end.address().ip), unfit.epoch,
                    config_.rank, config_.key.epoch, missing);
    } else if (version != 0) {
      format_detail(reason,
                    "rank {} at {} sends version {} of the chunk protocol, rank {} version {}; {}",
                    link->end.rank(), wire::to_string(link->end.address().ip), version,
                    config_.rank, wire::kProtocolVersion, missing);
    } else {
      format_detail(reason, "{} in {} ms (lane {}, payload {})", missing,
                    (now - started_at_) / 1'000'000, config_.lane, config_.payload_bytes);
    }
    return reason;
  }
  require(false, "a group is formed when all its links are open");
  return {};
}

}  // namespace gradwire::collective
