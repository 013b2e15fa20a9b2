// SPDX-License-Identifier: BSD-3-Clause
#include "rdma/rdma_mover.h"

#include <fmt/format.h>

#include "base/probe.h"
#include "base/require.h"

namespace gradwire::perf {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(20);

}  // namespace

RdmaMover::RdmaMover(RdmaWire& wire, const RdmaFlow& flow, const WaitOptions& wait)
    : wire_(wire), flow_(flow), wait_(wait), channels_{Channel(flow.depth), Channel(flow.depth)} {}

Result<void> RdmaMover::run(StreamOp& op) {
  idle_rounds_ = 0;
  waits_since_.reset();
  while (!op.finished()) {
    bool moved = false;
    while (true) {
      const auto posted = post(op);
      if (!posted) return tl::unexpected(posted.error());
      if (!*posted) break;
      moved = true;
    }
    const auto took = take_events();
    if (!took) return tl::unexpected(took.error());
    // One piece a round, so that what it makes ready is sent before the next is looked at.
    const auto used = use_up(op);
    if (!used) return tl::unexpected(used.error());
    const auto gave = give_credit();
    if (!gave) return tl::unexpected(gave.error());
    if (moved || *took || *used || *gave) {
      idle_rounds_ = 0;
    } else if (auto waited = idle(&op); !waited) {
      return waited;
    }
  }
  // The caller may overwrite its input afterwards, so the network must not refer to it any more.
  while (borrowed_ > 0) {
    const auto took = take_events();
    if (!took) return tl::unexpected(took.error());
    if (*took) {
      idle_rounds_ = 0;
    } else if (auto waited = idle(nullptr); !waited) {
      return waited;
    }
  }
  ++op_seq_;
  return {};
}

Result<void> RdmaMover::flush() {
  idle_rounds_ = 0;
  waits_since_.reset();
  while (channels_[0].posted.size() + channels_[1].posted.size() > 0) {
    const auto took = take_events();
    if (!took) return tl::unexpected(took.error());
    if (*took) continue;
    if (auto waited = idle(nullptr); !waited) return waited;
  }
  return {};
}

Result<bool> RdmaMover::post(StreamOp& op) {
  const auto bytes = op.to_send();
  if (bytes.empty()) return false;
  Channel& down = at(RdmaEnd::kDownstream);
  // Of the queue, words may have the rest.
  if (down.written - down.used_up_there >= flow_.depth || down.posted.full()) return false;
  const StreamPiece piece = op.sending();
  RdmaWrite write{bytes, 0, down.used_up};
  if (piece.place == nullptr) {
    require(bytes.size() <= flow_.slot_bytes, "a piece fits a slot");
    write.offset = next_slot(staged_there_);
  } else {
    write.offset = static_cast<std::uint64_t>(piece.place - flow_.memory.data());
  }
  const Posted posted{piece.chunk, op_seq_,
                      piece.hop,   static_cast<std::uint32_t>(bytes.size()),
                      false,       bytes.size() > wire_.inline_bytes()};
  GRADWIRE_PROBE6(rdma_posted, flow_.group_id, op_seq_, piece.chunk, piece.hop, flow_.rank,
                  posted.bytes);
  if (auto written = wire_.write(RdmaEnd::kDownstream, write); !written) {
    return tl::unexpected(written.error());
  }
  down.posted.push(posted);
  ++down.written;
  down.told = down.used_up;
  borrowed_ += posted.borrows;
  op.sent(bytes.size());
  return true;
}

Result<bool> RdmaMover::use_up(StreamOp& op) {
  Channel& upstream = at(up());
  if (upstream.arrived.size() == 0 || op.to_receive().empty()) return false;
  const StreamPiece piece = op.receiving();
  if (piece.place == nullptr) op.stage(flow_.memory.data() + next_slot(staged_here_));
  const std::size_t wanted = op.to_receive().size();
  const std::uint32_t bytes = upstream.arrived.pop();
  if (bytes != wanted) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("op {}: rank {} sent {} bytes of chunk {} at hop {}, rank {} expects {}: "
                    "give all ranks the same options",
                    op_seq_, previous(), bytes, piece.chunk, piece.hop, flow_.rank, wanted));
  }
  GRADWIRE_PROBE6(rdma_received, flow_.group_id, op_seq_, piece.chunk, piece.hop, flow_.rank,
                  bytes);
  op.received(wanted);
  ++upstream.used_up;
  return true;
}

Result<bool> RdmaMover::take_events() {
  std::array<RdmaEvent, 16> events;
  const auto count = wire_.poll(events);
  if (!count) {
    return fail(count.error().code, fmt::format("op {}: {}", op_seq_, count.error().message));
  }
  for (const RdmaEvent& event : std::span(events).first(*count)) {
    Channel& channel = at(event.end);
    if (event.kind == RdmaEvent::Kind::kCompleted) {
      if (auto completed = complete(event.end); !completed) {
        return tl::unexpected(completed.error());
      }
      continue;
    }
    channel.used_up_there = event.immediate;
    if (event.kind == RdmaEvent::Kind::kTold) continue;
    if (channel.arrived.full()) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("op {}: rank {} sends more to rank {} than its credit of {} writes: "
                              "give all ranks the same release of gradwire-perf",
                              op_seq_, previous(), flow_.rank, flow_.depth));
    }
    channel.arrived.push(event.bytes);
  }
  return *count > 0;
}

Result<void> RdmaMover::complete(RdmaEnd end) {
  Channel& channel = at(end);
  if (channel.posted.size() == 0) {
    return fail(ErrorCode::kInternal, "a completion came of nothing that was posted");
  }
  const Posted posted = channel.posted.pop();
  if (posted.is_word) return {};
  borrowed_ -= posted.borrows;
  GRADWIRE_PROBE6(rdma_completed, flow_.group_id, posted.op_seq, posted.chunk, posted.hop,
                  flow_.rank, posted.bytes);
  return {};
}

Result<bool> RdmaMover::give_credit() {
  Channel& upstream = at(up());
  if (upstream.used_up - upstream.told < flow_.depth / 2 || upstream.posted.full()) return false;
  if (auto told = wire_.tell(up(), upstream.used_up); !told) return tl::unexpected(told.error());
  upstream.posted.push({.is_word = true});
  upstream.told = upstream.used_up;
  return true;
}

Result<void> RdmaMover::idle(StreamOp* op) {
  constexpr std::uint64_t kRoundsPerLook = 64;
  ++idle_rounds_;
  // Spins on a core of its own. On a shared core it gives others the core after some microseconds.
  const bool sleeps = !wait_.busy && idle_rounds_ >= kRoundsPerLook;
  if (!sleeps && idle_rounds_ % kRoundsPerLook != 0) return {};
  const auto now = Clock::now();
  if (!waits_since_) waits_since_ = now;
  if (now - *waits_since_ > std::chrono::duration<double>(wait_.timeout_s)) return too_late(op);
  if (now >= next_look_) {
    next_look_ = now + kLookEvery;
    if (auto there = wire_.look_after_neighbors(); !there) {
      return fail(there.error().code, fmt::format("op {}: {}", op_seq_, there.error().message));
    }
  }
  if (sleeps) wire_.sleep();
  return {};
}

tl::unexpected<Error> RdmaMover::too_late(StreamOp* op) {
  std::string what;
  Channel& down = at(RdmaEnd::kDownstream);
  if (op != nullptr && !op->to_receive().empty()) {
    const StreamPiece piece = op->receiving();
    what = fmt::format("chunk {} at hop {} has not come from rank {}", piece.chunk, piece.hop,
                       previous());
  }
  if (op != nullptr && !op->to_send().empty()) {
    what += fmt::format("{}rank {} has not used up {} writes", what.empty() ? "" : ", and ", next(),
                        down.written - down.used_up_there);
  } else if (down.posted.size() > 0) {
    what += fmt::format("{}rank {} has not acknowledged {} writes", what.empty() ? "" : ", and ",
                        next(), down.posted.size());
  }
  if (what.empty()) what = fmt::format("rank {} has not acknowledged what it was told", previous());
  return fail(
      ErrorCode::kTimedOut,
      fmt::format("op {} did not end on rank {} within {} s: {}: is that rank gone or slow?",
                  op_seq_, flow_.rank, wait_.timeout_s, what));
}

}  // namespace gradwire::perf
