// SPDX-License-Identifier: BSD-3-Clause
// What both ends of a link do: connections, records, transfers that end.
#include "nccl_net/link.h"

#include <algorithm>
#include <cstdio>

#include "nccl_net/engine.h"
#include "nccl_net/log.h"

namespace gradwire::nccl_net {
namespace {

/// Transfers fail as soon as the other process has left its group. How long its last words may
/// still be on their way then.
constexpr auto kWordsGrace = std::chrono::seconds(2);
/// A daemon ends the transfers of a process that is gone. How long it may take for that.
constexpr auto kTransfersGrace = std::chrono::seconds(10);
constexpr int kRecordsAtOnce = 64;

}  // namespace

Connection* Link::open(const Token& listener) {
  if (!pipe_.has_room(2)) return nullptr;
  pipe_.keep_room();
  auto made = std::make_unique<Connection>();
  made->number = next_number_++;
  made->sends = true;
  made->link = shared_from_this();
  Record record;
  record.kind = RecordKind::kOpen;
  record.connection = made->number;
  record.token = listener;
  pipe_.put(record);
  pipe_.flush();
  ++open_;
  Connection* connection = made.get();
  connections_[connection->number] = std::move(made);
  return connection;
}

void Link::close(Connection& connection) {
  const std::shared_ptr<Link> keep = connection.link;
  connection.closed = true;
  --open_;
  Record record;
  record.kind = RecordKind::kClosed;
  record.connection = connection.number;
  record.value = connection.taken;
  pipe_.put_kept(record);
  if (state_ == State::kReady) pipe_.flush();
  // Perhaps nobody calls for this link any more.
  if (!pipe_.is_empty()) wake();
  drop_if_over(connection);
  if (open_ == 0 && (sends_ || state_ == State::kFailed || pipe_.ended() || !broken_.empty())) {
    if (state_ == State::kReady) state_ = State::kEnded;
    ending_ = true;
    wake();
  }
}

void Link::drop_if_over(Connection& connection) {
  if (!connection.closed || connection.in_slots > 0) return;
  // The other end may still say something about it.
  if (!sends_ && !connection.peer_closed && state_ == State::kReady) return;
  connections_.erase(connection.number);
}

void Link::fail(const std::string& why) {
  if (state_ == State::kFailed || state_ == State::kEnded) return;
  state_ = State::kFailed;
  why_ = why;
  pipe_.finish();
  // A link that fails while it is made is told of by those who wait for it.
  if (open_ == 0) {
    ending_ = true;
    wake();
  }
}

void Link::progress(Connection* connection) {
  if (state_ != State::kReady) return;
  take_records();
  take_ends();
  if (sends_) {
    if (connection != nullptr) send_some(*connection);
  } else {
    post_receives();
    copy_some();
  }
  pipe_.flush();
  check_end();
}

void Link::check_end() {
  if (pipe_.ended() && !heard_end_) on_end_of_words();
  if (broken_.empty()) return;
  const auto waited = std::chrono::steady_clock::now() - broken_since_;
  // What a receiver has taken, its last words say. What came to a receiver, its daemon says.
  const bool over =
      sends_ ? pipe_.ended() || waited > kWordsGrace : is_drained() || waited > kTransfersGrace;
  if (over) fail(broken_);
}

void Link::on_end_of_words() {
  heard_end_ = true;
  constexpr const char* kGone = "the process at the other end has gone";
  if (sends_) return note_broken(kGone);
  for (const auto& [number, one] : connections_) {
    if (one->peer_closed || one->closed) continue;
    note_broken(kGone);
    on_closed(*one, one->begun);
  }
}

bool Link::is_drained() const {
  return arrived_head_ == arrived_tail_ &&
         std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) {
           return stream.broken || stream.head == stream.posted;
         });
}

// ---- What the other end says ----

void Link::take_records() {
  Record record;
  for (int i = 0; i < kRecordsAtOnce && state_ == State::kReady; ++i) {
    // What has come may have to be answered.
    if (!pipe_.has_room(2) || !pipe_.next(record)) return;
    take(record);
  }
}

void Link::take(const Record& record) {
  if (!sends_ && record.kind == RecordKind::kOpen) return on_open(record);
  const auto found = connections_.find(record.connection);
  // A sender forgets a connection at once.
  if (found == connections_.end() && sends_) return;
  if (found == connections_.end()) {
    return fail("the other end speaks of a connection that it has closed, or has not opened");
  }
  Connection& connection = *found->second;
  if (record.kind == RecordKind::kClosed) {
    // What the other end has not told of, or not taken, never comes.
    on_closed(connection, sends_ ? record.value : connection.begun);
    return drop_if_over(connection);
  }
  if (sends_ && record.kind == RecordKind::kGrant) return on_grant(connection, record);
  if (!sends_ && record.kind == RecordKind::kSegment) return on_segment(connection, record);
  if (sends_ && (record.kind == RecordKind::kTaken || record.kind == RecordKind::kAllTaken)) {
    return on_taken(connection, record);
  }
  fail("the other end says what makes no sense: is its gradwire another version?");
}

void Link::on_open(const Record& record) {
  if (connections_.count(record.connection) != 0) {
    return fail("the other end has opened a connection twice");
  }
  pipe_.keep_room();
  auto made = std::make_unique<Connection>();
  made->number = record.connection;
  made->link = shared_from_this();
  Connection* connection = made.get();
  connections_[record.connection] = std::move(made);
  ++open_;
  if (!Engine::get().offer(record.token, connection)) close(*connection);
}

void Link::on_closed(Connection& connection, std::uint64_t over) {
  connection.peer_closed = true;
  const std::uint64_t first =
      connection.posted > kRequestsMax ? connection.posted - kRequestsMax : 0;
  for (std::uint64_t message = first; message < connection.posted; ++message) {
    Request& request = connection.request(message);
    if (request.state != Request::kPosted) continue;
    if (message >= over) {
      request.state = Request::kFailed;
    } else if (sends_) {
      request.state = Request::kDone;
    }
  }
}

// ---- Transfers ----

std::uint32_t Link::take_slot(std::uint32_t client) {
  std::uint32_t& free = ends_[client].free_slots;
  if (free == 0) return kNone;
  const auto slot = static_cast<std::uint32_t>(__builtin_ctz(free));
  free &= free - 1;
  return slot;
}

void Link::note_broken(const std::string& why) {
  if (!broken_.empty()) return;
  broken_ = why;
  broken_since_ = std::chrono::steady_clock::now();
}

bool Link::begin_transfer(std::uint32_t stream, Segment& segment) {
  End& end = ends_[client_of(stream)];
  char* memory = end.base + std::size_t{segment.slot} * kSegmentBytes;
  const std::uint32_t other = other_of(stream);
  const gw_status status =
      sends_ ? gw_send(end.group, memory, segment.bytes, GW_UINT8, other, 0, &segment.work)
             : gw_recv(end.group, memory, segment.bytes, GW_UINT8, other, 0, &segment.work);
  if (status == GW_OK) return true;
  segment.work = nullptr;
  note_broken(gw_last_error());
  return false;
}

void Link::take_ends() {
  for (std::uint32_t s = 0; s < kStreams; ++s) {
    Stream& stream = streams_[s];
    for (std::uint32_t i = 0; i < kSlots && !stream.broken && stream.head != stream.posted; ++i) {
      Segment& segment = stream.at(stream.head);
      int done = 0;
      const gw_status status = gw_test(segment.work, &done);
      if (status == GW_OK && done == 0) break;
      if (status != GW_OK) {
        stream.broken = true;
        note_broken(gw_last_error());
        break;
      }
      gw_work_free(segment.work);
      segment.work = nullptr;
      ++stream.head;
      on_end(s, segment);
    }
  }
}

void Link::on_end(std::uint32_t stream, Segment& segment) {
  if (sends_) {
    ends_[client_of(stream)].free_slots |= 1u << segment.slot;
    on_sent(segment);
    return;
  }
  Segment& arrived = arrived_[arrived_tail_++ % arrived_.size()];
  arrived = segment;
  arrived.slot = client_of(stream) * kSlots + segment.slot;
}

}  // namespace gradwire::nccl_net
