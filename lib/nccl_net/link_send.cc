// SPDX-License-Identifier: BSD-3-Clause
// The sender's end of a connection.
#include <algorithm>

#include "nccl_net/link.h"
#include "nccl_net/log.h"

namespace gradwire::nccl_net {
namespace {

/// What a small message counts of what one call copies: it costs a transfer.
constexpr std::uint64_t kLeastCost = 16 * 1024;

/// The requests of messages that are neither done nor failed.
template <class Function>
void for_posted(Connection& connection, Function&& function) {
  const std::uint64_t first =
      connection.posted > kRequestsMax ? connection.posted - kRequestsMax : 0;
  for (std::uint64_t message = first; message < connection.posted; ++message) {
    Request& request = connection.request(message);
    if (request.state == Request::kPosted && request.message == message) function(request);
  }
}

}  // namespace

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

void Link::send_some(Connection& connection, std::uint64_t& budget) {
  while (connection.begun != connection.posted && connection.begun != connection.granted &&
         !connection.stopped && broken_.empty() && sent_.has_room()) {
    Request& request = connection.request(connection.begun);
    const std::uint64_t bytes =
        std::min<std::uint64_t>(kSegmentBytes, request.bytes - request.told);
    if (bytes > budget) return;
    SegmentHeader header;
    header.connection = connection.number;
    header.message = request.message;
    header.offset = request.told;
    header.bytes = request.bytes;
    if (!sent_.send(header, request.data + request.told, bytes, &connection)) return;
    ++connection.in_slots;
    request.told += bytes;
    if (request.told == request.bytes) ++connection.begun;
    budget -= std::min(budget, std::max(bytes, kLeastCost));
  }
}

void Link::fill() {
  while (sent_.begun() < fill_to_ && broken_.empty() && sent_.has_room()) {
    if (!sent_.send(SegmentHeader{}, nullptr, 0, nullptr)) return;
  }
}

void Link::on_sent(const Segments::Ended& sent) {
  sent_.give_back(sent.slot);
  if (sent.connection == nullptr) return;
  Connection& connection = *sent.connection;
  --connection.in_slots;
  Request& request = connection.request(sent.message);
  // If the other end has said that it has the message, the request may be another's by now.
  if (!connection.closed && request.state == Request::kPosted && request.message == sent.message) {
    request.through += sent.bytes - sizeof(SegmentHeader);
    const bool whole = request.told == request.bytes && request.through == request.bytes;
    if (whole && sent.message < connection.begun) request.state = Request::kDone;
  }
  drop_if_over(connection);
}

void Link::on_state(Connection& connection, const Record& record) {
  if (record.a < connection.granted || record.b > connection.begun ||
      record.a - record.b > kRequestsMax) {
    return fail("the other end has more receives posted than NCCL posts");
  }
  connection.granted = record.a;
  for_posted(connection, [&](Request& request) {
    if (request.message < record.b) request.state = Request::kDone;
  });
}

void Link::on_closed_by_receiver(Connection& connection, const Record& record) {
  if (record.a > connection.begun) return fail("the other end has taken what was not sent");
  for_posted(connection, [&](Request& request) {
    request.state = request.message < record.a ? Request::kDone : Request::kFailed;
  });
  connection.stopped = true;
  note_to_tell(connection);
}

void Link::on_too_large(Connection& connection, const Record& record) {
  warn("a message of %llu bytes was sent, and its receive has room for %llu",
       static_cast<unsigned long long>(record.b), static_cast<unsigned long long>(record.a));
  connection.too_large = true;
  connection.stopped = true;
  for_posted(connection, [](Request& request) { request.state = Request::kFailed; });
  note_to_tell(connection);
}

}  // namespace gradwire::nccl_net
