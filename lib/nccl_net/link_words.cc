// SPDX-License-Identifier: BSD-3-Clause
// What the ends of a link tell each other by TCP.
#include "nccl_net/engine.h"
#include "nccl_net/link.h"

namespace gradwire::nccl_net {
namespace {

constexpr int kRecordsAtOnce = 64;
/// Room for one word of a connection, and for one of the link itself.
constexpr std::uint32_t kKept = 2;
/// A call that lacks no word looks for them only now and then.
constexpr std::uint32_t kLookForWords = 8;
constexpr const char* kNonsense =
    "the other end says what makes no sense: is its gradwire another version?";

}  // namespace

bool Link::needs_words(const Connection* connection) {
  if (connection == nullptr || !broken_.empty()) return true;
  const bool lacks_grant = connection->sends && connection->begun != connection->posted &&
                           connection->begun == connection->granted;
  return lacks_grant || ++calls_ % kLookForWords == 0;
}

// ---- To the other end ----

void Link::note_to_tell(Connection& connection) {
  if (connection.waits_to_tell) return;
  connection.waits_to_tell = true;
  connection.next_to_tell = nullptr;
  (first_to_tell_ == nullptr ? first_to_tell_ : last_to_tell_->next_to_tell) = &connection;
  last_to_tell_ = &connection;
}

void Link::tell() {
  do {
    while (first_to_tell_ != nullptr && pipe_.has_room(kKept)) tell_of(*first_to_tell_);
    pipe_.flush();
  } while (first_to_tell_ != nullptr && pipe_.has_room(kKept));
}

/// Says what there is room for, of the first that has something to tell.
void Link::tell_of(Connection& connection) {
  Record word;
  while (next_word(connection, word)) {
    if (word.kind == RecordKind::kState) {
      // Each message has a segment at least.
      expect_more(connection, word.a - connection.told_granted);
      connection.told_granted = word.a;
    }
    pipe_.put(word);
    if (!pipe_.has_room(kKept)) return;
  }
  first_to_tell_ = connection.next_to_tell;
  connection.waits_to_tell = false;
  drop_if_over(connection);
}

/// @return false: the other end knows all.
bool Link::next_word(Connection& connection, Record& word) {
  word = {};
  word.connection = connection.number;
  if (connection.sends && !connection.told_open) {
    connection.told_open = true;
    word.kind = RecordKind::kOpen;
    word.a = connection.listener[0];
    word.b = connection.listener[1];
    return true;
  }
  if (connection.told_closed) return false;
  if (connection.too_large && !connection.sends && !connection.told_too_large) {
    connection.told_too_large = true;
    word.kind = RecordKind::kTooLarge;
    word.a = connection.large_room;
    word.b = connection.large_bytes;
    return true;
  }
  if (connection.closed) {
    connection.told_closed = true;
    word.kind = RecordKind::kClosed;
  } else if (connection.sends && connection.stopped && !connection.told_stopped) {
    connection.told_stopped = true;
    word.kind = RecordKind::kStopped;
  } else if (!connection.sends && !connection.is_over() &&
             (connection.told_granted != connection.posted ||
              connection.told_taken != connection.taken)) {
    connection.told_taken = connection.taken;
    word.kind = RecordKind::kState;
    word.a = connection.posted;
    word.b = connection.taken;
    return true;
  } else {
    return false;
  }
  if (connection.sends) {
    word.a = connection.begun;
    const bool partly = connection.begun != connection.posted;
    word.b = partly ? connection.request(connection.begun).told / kSegmentBytes : 0;
  } else {
    word.a = connection.taken;
  }
  return true;
}

// ---- From the other end ----

void Link::take_records() {
  Record record;
  for (int i = 0; i < kRecordsAtOnce && is_live() && pipe_.next(record); ++i) take(record);
}

void Link::take(const Record& record) {
  switch (record.kind) {
    case RecordKind::kOpen:
      return on_open(record);
    case RecordKind::kFill:
      if (record.a > fill_to_) fill_to_ = record.a;
      return;
    case RecordKind::kEnd:
    case RecordKind::kEndToo:
      return on_end(record);
    default:
      break;
  }
  const auto found = connections_.find(record.connection);
  if (found == connections_.end()) {
    return fail("the other end speaks of a connection that it has closed, or has not opened");
  }
  Connection& connection = *found->second;
  switch (record.kind) {
    case RecordKind::kState:
      return connection.sends ? on_state(connection, record) : fail(kNonsense);
    case RecordKind::kTooLarge:
      return connection.sends ? on_too_large(connection, record) : fail(kNonsense);
    case RecordKind::kStopped:
      return connection.sends ? fail(kNonsense) : on_stopped_by_sender(connection, record);
    case RecordKind::kClosed:
      connection.sends ? on_closed_by_receiver(connection, record)
                       : on_stopped_by_sender(connection, record);
      connection.peer_closed = true;
      return drop_if_over(connection);
    default:
      return fail(kNonsense);
  }
}

void Link::on_open(const Record& record) {
  const std::uint32_t from = makes_ ? 1 : 0;  // the other end's numbers
  if (record.connection < 2 || record.connection % 2 != from ||
      connections_.count(record.connection) != 0) {
    return fail("the other end has opened a connection twice");
  }
  // It was about to end, and goes on.
  if (state_ == State::kEnding) state_ = State::kReady;
  ++heard_opens_;
  auto made = std::make_unique<Connection>();
  made->number = record.connection;
  made->link = shared_from_this();
  Connection* connection = made.get();
  connections_[record.connection] = std::move(made);
  if (++open_ == 1) wake();
  used_ = true;
  if (!Engine::get().offer({record.a, record.b}, connection)) close(*connection);
}

void Link::on_end(const Record& record) {
  const bool asked = record.kind == RecordKind::kEnd;
  if (asked == makes_) return fail(kNonsense);
  // If this end has opened one meanwhile, the other end hears of that, and goes on.
  if (!asked || record.a == opened_) is_over_ = true;
  wake();
}

}  // namespace gradwire::nccl_net
