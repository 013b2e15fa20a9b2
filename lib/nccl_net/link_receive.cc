// SPDX-License-Identifier: BSD-3-Clause
// The receiver's end of a connection.
#include <algorithm>
#include <cstring>

#include "nccl_net/link.h"
#include "nccl_net/log.h"

namespace gradwire::nccl_net {
namespace {

/// If the sender knows of so many receives whose messages are not here, it need not hear at once of
/// fewer than as many more: one word tells of all.
constexpr std::uint64_t kGrantsAhead = 4;

}  // namespace

Request* Link::post_receive(Connection& connection, void* data, std::uint64_t room) {
  Request& request = connection.request(connection.posted);
  if (request.state != Request::kFree || connection.posted - connection.taken >= kRequestsMax) {
    return nullptr;
  }
  request.connection = &connection;
  request.data = static_cast<char*>(data);
  request.message = connection.posted;
  request.room = room;
  request.bytes = 0;
  request.through = 0;
  request.known = false;
  request.state = Request::kPosted;
  ++connection.posted;
  grant(connection);
  return &request;
}

/// Tells the sender of receives, if it may run out of them.
void Link::grant(Connection& connection) {
  const std::uint64_t ahead = connection.told_granted - connection.taken;
  const std::uint64_t more = connection.posted - connection.told_granted;
  if (more >= kGrantsAhead || (more > 0 && ahead < kGrantsAhead)) note_to_tell(connection);
}

/// @param segments  may be less than 0, wrapped: they do not come after all
void Link::expect_more(Connection& connection, std::uint64_t segments) {
  connection.to_come += segments;
  to_come_ += segments;
}

bool Link::fits(const Connection& connection, const SegmentHeader& header,
                std::uint64_t bytes) const {
  if (connection.sends || header.message < connection.taken ||
      header.message >= connection.told_granted || header.offset % kSegmentBytes != 0 ||
      header.offset > header.bytes) {
    return false;
  }
  return bytes == std::min<std::uint64_t>(kSegmentBytes, header.bytes - header.offset) &&
         (bytes > 0 || header.bytes == 0);
}

void Link::on_arrival(const Segments::Ended& ended) {
  Arrival& arrival = arrivals_[arrivals_tail_ % arrivals_.size()];
  arrival.slot = ended.slot;
  if (ended.bytes < sizeof(SegmentHeader)) return fail("the other end sent less than a header");
  std::memcpy(&arrival.header, came_.memory_of(ended.slot), sizeof(SegmentHeader));
  const SegmentHeader& header = arrival.header;
  ++arrived_;
  if (header.connection == 0) {
    ++to_come_;
    return came_.give_back(ended.slot);
  }
  const auto found = connections_.find(header.connection);
  arrival.bytes = ended.bytes - sizeof(SegmentHeader);
  if (found == connections_.end() || !fits(*found->second, header, arrival.bytes)) {
    return fail("the other end sends what no receive is posted for");
  }
  Connection& connection = *found->second;
  arrival.connection = &connection;
  ++connection.in_slots;
  ++connection.arrived;
  ++arrivals_tail_;
  Request& request = connection.request(header.message);
  if (!request.known) {
    request.known = true;
    request.bytes = header.bytes;
    expect_more(connection, segments_of(header.bytes) - 1);
    if (header.bytes > request.room) refuse_as_too_large(connection, request, header.bytes);
  } else if (request.state == Request::kPosted && request.bytes != header.bytes) {
    fail("the other end sends one message with two sizes");
  }
}

void Link::refuse_as_too_large(Connection& connection, const Request& request,
                               std::uint64_t bytes) {
  if (connection.too_large || connection.closed) return;
  warn("a message of %llu bytes comes, and its receive has room for %llu",
       static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(request.room));
  connection.too_large = true;
  connection.large_room = request.room;
  connection.large_bytes = bytes;
  for (Request& one : connection.requests) {
    if (one.state == Request::kPosted) one.state = Request::kFailed;
  }
  note_to_tell(connection);
}

void Link::copy_some(std::uint64_t& budget) {
  while (arrivals_head_ != arrivals_tail_) {
    const Arrival& arrival = arrivals_[arrivals_head_ % arrivals_.size()];
    if (arrival.bytes > budget) return;
    budget -= arrival.bytes;
    ++arrivals_head_;
    Connection& connection = *arrival.connection;
    Request& request = connection.request(arrival.header.message);
    // After close() nobody may write to the caller's memory.
    if (!connection.closed && request.state == Request::kPosted) {
      if (arrival.bytes > 0) {
        std::memcpy(request.data + arrival.header.offset,
                    came_.memory_of(arrival.slot) + sizeof(SegmentHeader), arrival.bytes);
      }
      request.through += arrival.bytes;
      if (request.through == request.bytes) {
        request.state = Request::kDone;
        message_is_whole(connection, request.message);
      }
    }
    came_.give_back(arrival.slot);
    --connection.in_slots;
    drop_if_over(connection);
  }
}

void Link::message_is_whole(Connection& connection, std::uint64_t message) {
  connection.whole[message % kRequestsMax] = true;
  while (connection.taken < connection.posted &&
         connection.whole[connection.taken % kRequestsMax]) {
    connection.whole[connection.taken++ % kRequestsMax] = false;
  }
  // If all that was posted has come, this process may end without another word. Its daemon's word
  // that the last transfers came may be overtaken by its word that this process is gone.
  if (connection.taken == connection.posted) note_to_tell(connection);
  grant(connection);
}

/// What the sender has not begun never comes.
void Link::on_stopped_by_sender(Connection& connection, const Record& record) {
  if (connection.peer_stopped) return;
  connection.peer_stopped = true;
  if (record.a > connection.told_granted) return fail("the other end has sent what it must not");
  for (std::uint64_t message = record.a; message < connection.told_granted; ++message) {
    Request& request = connection.request(message);
    const std::uint64_t counted = request.known ? segments_of(request.bytes) : 1;
    expect_more(connection, (message == record.a ? record.b : 0) - counted);
    request.known = true;
  }
  for (std::uint64_t message = record.a; message < connection.posted; ++message) {
    Request& request = connection.request(message);
    if (request.state == Request::kPosted) request.state = Request::kFailed;
  }
}

}  // namespace gradwire::nccl_net
