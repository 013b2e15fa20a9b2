// SPDX-License-Identifier: BSD-3-Clause
// What both ends of a link do: connections, progress, and how it fails.
#include "nccl_net/link.h"

#include <cstdio>

namespace gradwire::nccl_net {
namespace {

/// Transfers fail as soon as the other process has left its group. How long its last words may
/// still be on their way then.
constexpr auto kWordsGrace = std::chrono::seconds(2);
/// A daemon ends the transfers of a process that is gone. How long it may take for that.
constexpr auto kTransfersGrace = std::chrono::seconds(10);
constexpr const char* kGone = "the process at the other end has gone";

}  // namespace

const char* Link::why_over(const Connection& connection) const {
  if (!broken_.empty()) return broken_.c_str();
  return connection.too_large ? "a message is larger than its receive"
                              : "the other end has closed the connection";
}

Connection* Link::open(const Token& listener) {
  auto made = std::make_unique<Connection>();
  made->number = next_number_;
  next_number_ += 2;
  made->sends = true;
  made->link = shared_from_this();
  made->listener = listener;
  ++open_;
  ++opened_;
  used_ = true;
  is_over_ = false;
  Connection* connection = made.get();
  connections_[connection->number] = std::move(made);
  note_to_tell(*connection);
  tell();
  if (open_ == 1) wake();  // its calls read what comes, and the thread does no longer
  return connection;
}

void Link::close(Connection& connection) {
  const std::shared_ptr<Link> keep = connection.link;
  connection.closed = true;
  connection.stopped = connection.sends;
  --open_;
  if (is_live()) {
    note_to_tell(connection);
    tell();
  } else {
    drop_if_over(connection);
  }
  // Perhaps nobody calls for this link any more.
  if (open_ == 0 || !nothing_to_tell()) wake();
}

void Link::drop_if_over(Connection& connection) {
  if (!connection.closed || connection.in_slots > 0 || connection.waits_to_tell) return;
  // The other end may still say something about it, and what it has sent may still come.
  if (is_live() && (!connection.peer_closed || connection.arrived != connection.to_come)) return;
  connections_.erase(connection.number);
  if (connections_.empty()) wake();
}

void Link::fail(const std::string& why) {
  if (state_ == State::kFailed || state_ == State::kEnded) return;
  state_ = State::kFailed;
  why_ = why;
  pipe_.finish();
  if (open_ == 0) wake();
}

void Link::note_broken(const std::string& why) {
  if (!broken_.empty()) return;
  broken_ = why;
  broken_since_ = std::chrono::steady_clock::now();
}

void Link::progress(Connection* connection) {
  if (!is_live()) return;
  if (needs_words(connection)) take_records();
  sent_.take_ends([this](const Segments::Ended& sent) { on_sent(sent); });
  came_.take_ends([this](const Segments::Ended& came) { on_arrival(came); });
  std::uint64_t budget = kSegmentBytes;
  if (connection != nullptr && connection->sends) {
    send_some(*connection, budget);
    copy_some(budget);
  } else {
    copy_some(budget);
  }
  if (fill_to_ > sent_.begun()) fill();
  post_receives();
  gw_flush(client_);
  tell();
  check_end();
}

void Link::post_receives() {
  while (broken_.empty() && came_.begun() < to_come_ && came_.has_room()) {
    if (!came_.receive()) return;
  }
  // All that is left to come has come, and receives are left.
  if (came_.begun() > to_come_ && arrived_ == to_come_ && told_fill_ != came_.begun() &&
      pipe_.has_room(1)) {
    told_fill_ = came_.begun();
    Record fill;
    fill.kind = RecordKind::kFill;
    fill.a = told_fill_;
    pipe_.put(fill);
  }
}

void Link::check_end() {
  if (!sent_.broken().empty()) note_broken(sent_.broken());
  if (!came_.broken().empty()) note_broken(came_.broken());
  if (pipe_.ended() && !heard_end_) {
    heard_end_ = true;
    note_broken(kGone);
  }
  if (broken_.empty()) return;
  const auto waited = std::chrono::steady_clock::now() - broken_since_;
  // What came here, the daemon says. What the other end has taken, its last words say.
  const bool drained =
      (came_.under_way() == 0 && arrivals_head_ == arrivals_tail_) || waited > kTransfersGrace;
  if (drained && !said_last_ && (nothing_to_tell() || waited > kWordsGrace)) {
    said_last_ = true;
    pipe_.finish();
  }
  if (drained && (heard_end_ || waited > kWordsGrace)) fail(broken_);
}

}  // namespace gradwire::nccl_net
