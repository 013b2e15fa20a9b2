// SPDX-License-Identifier: BSD-3-Clause
// The sender's end of a link.
#include <algorithm>
#include <cstring>

#include "nccl_net/link.h"
#include "nccl_net/log.h"

namespace gradwire::nccl_net {

Request* Link::post_send(Connection& connection, void* data, std::uint64_t bytes) {
  Request& request = connection.request(connection.posted);
  if (request.state != Request::kFree) return nullptr;
  request.connection = &connection;
  request.data = static_cast<char*>(data);
  request.message = connection.posted;
  request.bytes = bytes;
  request.told = 0;
  request.through = 0;
  request.state = Request::kPosted;
  ++connection.posted;
  return &request;
}

void Link::on_grant(Connection& connection, const Record& record) {
  if (connection.granted - connection.begun >= kRequestsMax) {
    return fail("the other end has more receives posted than NCCL posts");
  }
  connection.grants[connection.granted % kRequestsMax] = record.value;
  ++connection.granted;
}

void Link::send_some(Connection& connection) {
  if (connection.begun == connection.posted || connection.begun == connection.granted) return;
  if (connection.peer_closed || !broken_.empty() || !pipe_.has_room(1)) return;
  Request& request = connection.request(connection.begun);
  const std::uint64_t room = connection.grants[connection.begun % kRequestsMax];
  if (request.bytes > room) {
    warn("a message of %llu bytes is sent, and its receive has room for %llu",
         static_cast<unsigned long long>(request.bytes), static_cast<unsigned long long>(room));
    Record closed;
    closed.kind = RecordKind::kClosed;
    closed.connection = connection.number;
    pipe_.put(closed);
    request.state = Request::kFailed;
    connection.peer_closed = true;
    return;
  }
  Record record;
  record.kind = RecordKind::kSegment;
  record.connection = connection.number;
  record.value = request.bytes;
  if (request.bytes == 0) {
    pipe_.put(record);
    ++connection.begun;
    return;
  }
  std::uint32_t slot = kNone;
  std::uint32_t s = next_stream_;
  for (std::uint32_t tries = 0; tries < kStreams && slot == kNone; ++tries) {
    s = (next_stream_ + tries) % kStreams;
    slot = take_slot(client_of(s));
  }
  if (slot == kNone) return;
  next_stream_ = (s + 1) % kStreams;
  Stream& stream = streams_[s];
  Segment& segment = stream.at(stream.tail);
  segment.connection = &connection;
  segment.message = connection.begun;
  segment.offset = request.told;
  segment.bytes = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(kSegmentBytes, request.bytes - request.told));
  segment.slot = slot;
  std::memcpy(ends_[client_of(s)].base + std::size_t{slot} * kSegmentBytes,
              request.data + segment.offset, segment.bytes);
  if (!begin_transfer(s, segment)) return;
  ++stream.tail;
  ++stream.posted;
  ++connection.in_slots;
  record.stream = s;
  record.bytes = segment.bytes;
  pipe_.put(record);
  request.told += segment.bytes;
  if (request.told == request.bytes) ++connection.begun;
}

void Link::on_sent(const Segment& segment) {
  Connection& connection = *segment.connection;
  --connection.in_slots;
  Request& request = connection.request(segment.message);
  // If the other end has said that it has the message, the request may be another's by now.
  if (!connection.closed && request.state == Request::kPosted &&
      request.message == segment.message) {
    request.through += segment.bytes;
    if (request.through == request.bytes) request.state = Request::kDone;
  }
  drop_if_over(connection);
}

void Link::on_taken(Connection& connection, const Record& record) {
  const bool one = record.kind == RecordKind::kTaken;
  const std::uint64_t end = one ? record.value + 1 : record.value;
  if (end > connection.begun || (one && end == 0)) {
    return fail("the other end has taken a message that was not sent");
  }
  const std::uint64_t first = end > kRequestsMax ? end - kRequestsMax : 0;
  for (std::uint64_t message = one ? record.value : first; message < end; ++message) {
    Request& request = connection.request(message);
    if (request.state == Request::kPosted && request.message == message) {
      request.state = Request::kDone;
    }
  }
}

}  // namespace gradwire::nccl_net
