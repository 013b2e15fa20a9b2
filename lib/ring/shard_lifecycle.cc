// SPDX-License-Identifier: BSD-3-Clause
// How a shard's life begins and ends.
//
// Forming: the upstream rank repeats its hello until the hello-ack comes; a shard is formed when
// its own hello was answered and its upstream's hello came. Both are as long as a full packet.
//
// Silence: an upstream rank sends data or pings, a downstream rank acknowledges them, so each side
// hears the other within a ping interval. Silence adds up only over the rounds in which this lane
// polls, each round for kRoundNsMax at most: a lane that was paused must not take its own pause for
// its neighbour's.
//
// Abort: the first cause wins; it is told to both neighbours, and they tell theirs, this rank too:
// a neighbour that did so knows. Until then it is told again and again, at the ping's interval at
// least, since it would take silence here for a death. A rank is not closed before both know, or
// cannot (they left, or are the ones that fell silent), the leave limit apart.
//
// Leave: when nothing is unacknowledged, a bye says up to which op everything is finished here.
// It is repeated until it is answered; a neighbour that left is no longer listened for.
#include <fmt/format.h>

#include <algorithm>

#include "base/probe.h"
#include "ring/shard_impl.h"

namespace gradwire::ring {

using wire::Drop;
using wire::PacketType;

namespace {

constexpr std::uint32_t kAbortRepeats = 5;       ///< however soon the neighbours answer
constexpr std::uint32_t kAbortRepeatsMax = 400;  ///< where one does not
constexpr TimeNs kAbortSpacingNs = 4'000'000;    ///< doubled with each repetition
constexpr TimeNs kRoundNsMax = 10'000'000;

}  // namespace

std::uint64_t Shard::Impl::control_number() noexcept {
  // Above every number that a sender or receiver ever takes, so that no number is used twice.
  return std::uint64_t{1} << 63 | ++control_numbers_;
}

void Shard::Impl::account_silence(TimeNs now) noexcept {
  const TimeNs round = std::clamp<TimeNs>(now - last_poll_, 0, kRoundNsMax);
  last_poll_ = now;
  if (state_ != ShardState::kFormed) return;
  account_stall(now, round);
  if (config_.nranks == 1 || !live()) return;
  for (Neighbor* neighbor : {&upstream_, &downstream_}) {
    if (neighbor->left) continue;
    neighbor->silence_ns += round;
    if (neighbor->silence_ns < config_.timeouts.silence_ns) continue;
    AbortReason reason{.code = AbortCode::kSilence,
                       .culprit_rank = neighbor == &upstream_ ? upstream_rank() : downstream_rank(),
                       .reporter_rank = config_.rank,
                       .op_seq = oldest_unfinished(),
                       .duration_ns = static_cast<std::uint64_t>(neighbor->silence_ns)};
    become_aborted(reason, now);
    return;
  }
}

bool Shard::Impl::wants_hello(const wire::HelloBody& hello, std::uint8_t lane) const noexcept {
  return config_.nranks > 1 && hello.key == config_.key && hello.to_rank == config_.rank &&
         lane == config_.lane && state_ != ShardState::kClosed && state_ != ShardState::kIdle;
}

bool Shard::Impl::hello_fits(const wire::HelloBody& hello, std::uint16_t from_rank,
                             std::uint64_t incarnation, TimeNs now) noexcept {
  if (!(hello.key == config_.key) || hello.to_rank != config_.rank ||
      hello.from_rank != from_rank || hello.incarnation != incarnation) {
    count_drop(Drop::kState);  // A daemon that was there before, or one that is not in our table.
    return false;
  }
  if (hello.table_digest == config_.table_digest && hello.nranks == config_.nranks &&
      hello.lanes == config_.lanes && hello.payload_bytes == config_.payload_bytes) {
    return true;
  }
  AbortReason reason{
      .code = AbortCode::kFormation, .culprit_rank = from_rank, .reporter_rank = config_.rank};
  const auto written = fmt::format_to_n(
      reason.detail, AbortReason::kDetailBytes - 1,
      "its table of the group differs: {} ranks, {} lanes, payload {}, digest {:x}; here {} ranks, "
      "{} lanes, payload {}, digest {:x}",
      hello.nranks, hello.lanes, hello.payload_bytes, hello.table_digest, config_.nranks,
      config_.lanes, config_.payload_bytes, config_.table_digest);
  *written.out = '\0';
  become_aborted(reason, now);
  return false;
}

bool Shard::Impl::learn_connection_id(Neighbor& neighbor, std::uint32_t id) noexcept {
  if (!neighbor.heard) {
    neighbor.heard = true;
    neighbor.connection_id = id;
  } else if (neighbor.connection_id != id) {
    count_drop(Drop::kState);
  }
  return neighbor.connection_id == id;
}

void Shard::Impl::receive_hello(const wire::Packet& packet, TimeNs now) noexcept {
  const wire::HelloBody& hello = packet.hello;
  if (!hello_fits(hello, upstream_rank(), config_.upstream_incarnation, now)) return;
  if (!learn_connection_id(upstream_, hello.connection_id)) return;
  upstream_.silence_ns = 0;
  hello_ack_wanted_ = true;
  become_formed_if_ready(now);
}

void Shard::Impl::receive_hello_ack(const wire::Packet& packet, TimeNs now) noexcept {
  const wire::HelloBody& hello = packet.hello;
  if (!hello_fits(hello, downstream_rank(), config_.downstream_incarnation, now)) return;
  if (!learn_connection_id(downstream_, hello.connection_id)) return;
  downstream_.silence_ns = 0;
  const std::uint64_t posted_before = sender_.posted_op_seq();
  if (sender_.raise_limits(hello.credit_chunks, hello.posted_op_seq)) {
    release_eager(posted_before);
  }
  become_formed_if_ready(now);
}

void Shard::Impl::become_formed_if_ready(TimeNs now) noexcept {
  if (state_ != ShardState::kForming || !upstream_.heard || !downstream_.heard) return;
  state_ = ShardState::kFormed;
  upstream_.silence_ns = downstream_.silence_ns = 0;
  last_down_sent_ = now;
  emit(EventType::kFormed);
}

void Shard::Impl::abort(const AbortReason& reason, TimeNs now) noexcept {
  become_aborted(reason, now);
}

void Shard::Impl::become_aborted(const AbortReason& reason, TimeNs now) noexcept {
  if (!live()) return;
  state_ = ShardState::kAborted;
  reason_ = reason;
  GRADWIRE_PROBE6(abort, config_.key.group_id, reason.op_seq, config_.rank, config_.lane,
                  static_cast<int>(reason.code), reason.culprit_rank);
  drop_everything();
  bye_ack_up_wanted_ = bye_ack_down_wanted_ = false;  // It gets to hear of the abort instead.
  abort_event_wanted_ = true;
  next_abort_ = now;
  if (leave_wanted_) leave_deadline_ = now + config_.timeouts.leave_ns;
}

bool Shard::Impl::knows_of_abort(const Neighbor& neighbor, std::uint16_t rank) const noexcept {
  return config_.nranks == 1 || neighbor.aborted || neighbor.left ||
         (reason_.code == AbortCode::kSilence && reason_.culprit_rank == rank);
}

void Shard::Impl::drop_everything() noexcept {
  // What the backend has is freed when it gives it back: complete() sees the state.
  folds_.drop_waiting();
  for (SentRecord& record : records_) {
    if (record.state != SentRecord::State::kFree) free_record(record);
  }
  for (; !ready_.empty(); ready_.pop()) rte_pktmbuf_free(ready_.front().mbuf);
  early_.free_all();
  checks_.free_all();
  progress_checks_.clear();
  ops_.forget_spilled();
  probes_wanted_ = 0;
  sender_.forget_all();
}

void Shard::Impl::leave(TimeNs now) noexcept {
  if (leave_wanted_) return;
  leave_wanted_ = true;
  leave_deadline_ = now + config_.timeouts.leave_ns;
  next_bye_ = now;
  const bool unfinished = oldest_unfinished() != 0;
  if (state_ == ShardState::kForming || (state_ == ShardState::kFormed && unfinished)) {
    AbortReason reason{.code = AbortCode::kPeerLeft,
                       .culprit_rank = config_.rank,
                       .reporter_rank = config_.rank,
                       .op_seq = oldest_unfinished()};
    become_aborted(reason, now);
  } else if (state_ == ShardState::kFormed) {
    state_ = ShardState::kLeaving;
  }
}

void Shard::Impl::receive_bye(const wire::Packet& packet, bool from_upstream, TimeNs now) noexcept {
  Neighbor& neighbor = from_upstream ? upstream_ : downstream_;
  (from_upstream ? bye_ack_up_wanted_ : bye_ack_down_wanted_) = true;
  if (neighbor.left) return;
  neighbor.left = true;
  neighbor.left_after_op_seq = packet.bye.completed_op_seq;
  check_left(neighbor, from_upstream ? upstream_rank() : downstream_rank(), now);
  if (!live() || from_upstream) return;
  // It finished every op, so whatever it did not acknowledge it has.
  for (SentRecord& record : records_) {
    if (record.state != SentRecord::State::kFree) free_record(record);
  }
  for (; !ready_.empty(); ready_.pop()) rte_pktmbuf_free(ready_.front().mbuf);
  sender_.forget_all();
}

void Shard::Impl::check_left(const Neighbor& neighbor, std::uint16_t rank, TimeNs now) noexcept {
  if (!neighbor.left || oldest_unfinished() == 0 || ops_.posted() <= neighbor.left_after_op_seq) {
    return;
  }
  AbortReason reason{.code = AbortCode::kPeerLeft,
                     .culprit_rank = rank,
                     .reporter_rank = config_.rank,
                     .op_seq = oldest_unfinished()};
  const auto written = fmt::format_to_n(reason.detail, AbortReason::kDetailBytes - 1,
                                        "its last op was {}, here {} were posted",
                                        neighbor.left_after_op_seq, ops_.posted());
  *written.out = '\0';
  become_aborted(reason, now);
}

bool Shard::Impl::all_sent_acknowledged() const noexcept {
  return records_free_.size() == records_.size() && ready_.empty() && folds_.size() == 0 &&
         ops_.spilled() == 0;
}

bool Shard::Impl::send_hello(PacketType type, TimeNs, Outbox& out) noexcept {
  const bool down = type == PacketType::kHello;
  // A hello is as long as a data packet, so it needs a packet's buffer.
  return send_control(config_.packet_pool, down, out, [&](std::span<std::byte> room) {
    wire::HelloBody body;
    body.key = config_.key;
    body.incarnation = config_.incarnation;
    body.table_digest = config_.table_digest;
    body.payload_bytes = config_.payload_bytes;
    body.connection_id = down ? config_.sender_connection_id : config_.receiver_connection_id;
    body.from_rank = config_.rank;
    body.to_rank = down ? downstream_rank() : upstream_rank();
    body.nranks = config_.nranks;
    body.lanes = config_.lanes;
    body.credit_chunks = credit_limit();
    body.posted_op_seq = ops_.posted();
    return wire::encode_hello(room, type, common_header(type, down, control_number()), body,
                              std::max<std::size_t>(wire::kHeaderBytes + config_.payload_bytes,
                                                    wire::kHeaderBytes + wire::kHelloBodyBytes));
  });
}

bool Shard::Impl::send_abort(bool down, TimeNs, Outbox& out) noexcept {
  if (!(down ? downstream_ : upstream_).heard) return false;
  return send_control(config_.control_pool, down, out, [&](std::span<std::byte> room) {
    return wire::encode_abort(room, common_header(PacketType::kAbort, down, control_number()),
                              reason_);
  });
}

bool Shard::Impl::send_bye(PacketType type, bool down, Outbox& out) noexcept {
  return send_control(config_.control_pool, down, out, [&](std::span<std::byte> room) {
    return wire::encode_bye(room, type, common_header(type, down, control_number()),
                            wire::ByeBody{ops_.done()});
  });
}

bool Shard::Impl::run_lifecycle(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  if (state_ == ShardState::kAborted) {
    if (abort_event_wanted_ && folds_.size() == 0) {
      abort_event_wanted_ = false;
      emit(EventType::kAborted);
      worked = true;
    }
    const bool told = knows_of_abort(upstream_, upstream_rank()) &&
                      knows_of_abort(downstream_, downstream_rank());
    if (now >= next_abort_) {
      send_abort(true, now, out);
      send_abort(false, now, out);
      const TimeNs spacing_ns = std::min(kAbortSpacingNs << std::min(++aborts_sent_, kAbortRepeats),
                                         config_.timeouts.ping_interval_ns);
      const bool more = aborts_sent_ < (told ? kAbortRepeats : kAbortRepeatsMax);
      next_abort_ = more ? now + spacing_ns : kNever;
      worked = true;
    }
    // Whoever is not known yet cannot be told: a hello makes it answer, and then it is.
    if (greets_downstream(now) && now >= next_hello_) {
      worked |= send_hello(PacketType::kHello, now, out);
      next_hello_ = now + config_.timeouts.hello_interval_ns;
    }
    if (hello_ack_wanted_) hello_ack_wanted_ = !send_hello(PacketType::kHelloAck, now, out);
    if (abort_reply_down_) abort_reply_down_ = !send_abort(true, now, out) && downstream_.heard;
    if (abort_reply_up_) abort_reply_up_ = !send_abort(false, now, out) && upstream_.heard;
    const bool last_word = told && next_abort_ == kNever;
    if (leave_wanted_ && !abort_event_wanted_ && (last_word || now >= leave_deadline_)) {
      state_ = ShardState::kClosed;
      emit(EventType::kClosed);
    }
    return worked;
  }
  if (hello_ack_wanted_) hello_ack_wanted_ = !send_hello(PacketType::kHelloAck, now, out);
  if (bye_ack_down_wanted_) bye_ack_down_wanted_ = !send_bye(PacketType::kByeAck, true, out);
  if (bye_ack_up_wanted_) bye_ack_up_wanted_ = !send_bye(PacketType::kByeAck, false, out);

  if (state_ == ShardState::kForming) {
    if (greets_downstream(now) && now >= next_hello_) {
      worked |= send_hello(PacketType::kHello, now, out);
      next_hello_ = now + config_.timeouts.hello_interval_ns;
    }
    if (now - started_at_ >= config_.timeouts.formation_ns) {
      AbortReason reason{.code = AbortCode::kFormation,
                         .culprit_rank = downstream_.heard ? upstream_rank() : downstream_rank(),
                         .reporter_rank = config_.rank,
                         .duration_ns = static_cast<std::uint64_t>(now - started_at_)};
      const auto written = fmt::format_to_n(
          reason.detail, AbortReason::kDetailBytes - 1, "{} in {} ms (lane {}, payload {})",
          downstream_.heard ? "no hello came from it" : "it did not answer our hello",
          (now - started_at_) / 1'000'000, config_.lane, config_.payload_bytes);
      *written.out = '\0';
      become_aborted(reason, now);
    }
  } else if (state_ == ShardState::kLeaving) {
    const bool down_done = config_.nranks == 1 || downstream_.bye_acked || downstream_.left;
    const bool up_done = config_.nranks == 1 || upstream_.bye_acked || upstream_.left;
    if (config_.nranks > 1 && now >= next_bye_ && all_sent_acknowledged()) {
      if (!downstream_.bye_acked) worked |= send_bye(PacketType::kBye, true, out);
      if (!upstream_.bye_acked) worked |= send_bye(PacketType::kBye, false, out);
      next_bye_ = now + config_.timeouts.hello_interval_ns;
      bye_sent_ = true;
    }
    // After the last word a short while more, to answer a neighbour whose bye is on its way.
    const bool done = config_.nranks == 1 || (bye_sent_ && down_done && up_done);
    if (done && close_at_ == kNever) {
      close_at_ = config_.nranks == 1 ? now : now + 2 * config_.timeouts.hello_interval_ns;
    }
    // A backend that still has chunks refers to client memory, however late it is.
    if ((now >= close_at_ || now >= leave_deadline_) && folds_.size() == 0) {
      drop_everything();
      state_ = ShardState::kClosed;
      emit(EventType::kClosed);
      worked = true;
    }
  }
  return worked;
}

}  // namespace gradwire::ring
