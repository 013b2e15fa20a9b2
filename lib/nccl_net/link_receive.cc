// SPDX-License-Identifier: BSD-3-Clause
// The receiver's end of a link.
#include <algorithm>
#include <cstring>

#include "nccl_net/link.h"

namespace gradwire::nccl_net {

Request* Link::post_receive(Connection& connection, void* data, std::uint64_t room) {
  Request& request = connection.request(connection.posted);
  if (request.state != Request::kFree || connection.posted - connection.taken >= kRequestsMax) {
    return nullptr;
  }
  if (!pipe_.has_room(1)) return nullptr;
  request.connection = &connection;
  request.data = static_cast<char*>(data);
  request.message = connection.posted;
  request.room = room;
  request.bytes = 0;
  request.told = 0;
  request.through = 0;
  request.state = Request::kPosted;
  ++connection.posted;
  Record record;
  record.kind = RecordKind::kGrant;
  record.connection = connection.number;
  record.value = room;
  pipe_.put(record);
  return &request;
}

void Link::message_is_whole(Connection& connection, std::uint64_t message) {
  connection.whole[message % kRequestsMax] = true;
  while (connection.taken < connection.begun && connection.whole[connection.taken % kRequestsMax]) {
    connection.whole[connection.taken++ % kRequestsMax] = false;
  }
  if (connection.taken != connection.posted) return;
  // This process may end without another word once it has all that it waits for. Its daemon's word
  // that the last transfers came may be overtaken by its word that this process is gone.
  Record taken;
  taken.kind = RecordKind::kAllTaken;
  taken.connection = connection.number;
  taken.value = connection.taken;
  pipe_.put(taken);
}

void Link::on_segment(Connection& connection, const Record& record) {
  if (connection.begun == connection.posted) {
    return fail("the other end sends a message for which no receive is posted");
  }
  Request& request = connection.request(connection.begun);
  if (request.told == 0) request.bytes = record.value;
  if (record.value != request.bytes || record.value > request.room ||
      record.bytes > record.value - request.told || record.bytes > kSegmentBytes ||
      (record.bytes == 0) != (record.value == 0) || record.stream >= kStreams) {
    return fail("the other end sends a message that does not fit its receive");
  }
  const std::uint64_t message = connection.begun;
  if (record.bytes == 0) {
    ++connection.begun;
    if (request.state == Request::kPosted && !connection.closed) request.state = Request::kDone;
    Record taken;
    taken.kind = RecordKind::kTaken;
    taken.connection = connection.number;
    taken.value = message;
    pipe_.put(taken);
    return message_is_whole(connection, message);
  }
  Stream& stream = streams_[record.stream];
  if (stream.tail - stream.head >= stream.ring.size()) {
    return fail("the other end has more segments under way than it has room for");
  }
  Segment& segment = stream.at(stream.tail++);
  segment.connection = &connection;
  segment.message = message;
  segment.offset = request.told;
  segment.bytes = record.bytes;
  segment.slot = kNone;
  segment.work = nullptr;
  ++connection.in_slots;
  request.told += record.bytes;
  if (request.told == request.bytes) ++connection.begun;
}

void Link::post_receives() {
  for (std::uint32_t s = 0; s < kStreams; ++s) {
    Stream& stream = streams_[s];
    for (std::uint32_t i = 0; i < kSlots && stream.posted != stream.tail && broken_.empty(); ++i) {
      Segment& segment = stream.at(stream.posted);
      if (segment.slot == kNone) segment.slot = take_slot(client_of(s));
      if (segment.slot == kNone || !begin_transfer(s, segment)) break;
      ++stream.posted;
    }
  }
}

void Link::copy_some() {
  if (arrived_head_ == arrived_tail_ || !pipe_.has_room(1)) return;
  const Segment segment = arrived_[arrived_head_++ % arrived_.size()];
  const std::uint32_t client = segment.slot / kSlots;
  const std::uint32_t slot = segment.slot % kSlots;
  Connection& connection = *segment.connection;
  Request& request = connection.request(segment.message);
  // After close() nobody may write to the caller's memory.
  if (!connection.closed && request.state == Request::kPosted) {
    std::memcpy(request.data + segment.offset,
                ends_[client].base + std::size_t{slot} * kSegmentBytes, segment.bytes);
    request.through += segment.bytes;
    if (request.through == request.bytes) {
      request.state = Request::kDone;
      message_is_whole(connection, segment.message);
    }
  }
  ends_[client].free_slots |= 1u << slot;
  --connection.in_slots;
  drop_if_over(connection);
}

}  // namespace gradwire::nccl_net
