// SPDX-License-Identifier: BSD-3-Clause
// Sends, in the order of sendProxyProgress(): each round hands over one message that is ready, or
// else tests the oldest.
#include <fmt/core.h>

#include "nccl/calls.h"
#include "nccl/draw.h"
#include "nccl/endpoint.h"
#include "nccl/failure.h"
#include "nccl/pattern.h"

namespace gradwire::nccl {

bool Endpoint::progress_sends() {
  bool moved = false;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (send_next(s) || test_send(s)) moved = true;
  }
  return moved;
}

bool Endpoint::send_next(std::size_t index) {
  Stream& stream = streams_[index];
  const auto depth = static_cast<std::uint64_t>(plan_.depth);
  if (stream.posted == plan_.steps[index] || stream.posted - stream.done == depth) return false;
  const std::size_t slot = stream.posted % depth;
  const Message what = message(plan_, index, stream.posted);
  char* data = slots_[index].at(slot) + what.send_offset;
  if (!stream.filled) {
    if (options_.check) fill_pattern(what.key, data, what.bytes);
    stream.filled = true;
    stream.posted_ns[slot] = now_ns();
    stream.ready_ns = stream.posted_ns[slot];
    if (plan_.pause_us > 0) stream.ready_ns += mixed(what.key) % (plan_.pause_us * 1000);
  }
  if (now_ns() < stream.ready_ns) return false;
  void*& request = stream.requests[slot];
  request = not_written();
  need(library_.isend(comm_, data, what.bytes, tag(index),
                      registration(index, slot, what.own_registration), &request),
       "isend", index, stream.posted);
  need_written(request, "isend", index, stream.posted);
  if (request == nullptr) {
    ++later_;
    const double waited_s = static_cast<double>(now_ns() - stream.ready_ns) / 1e9;
    if (waited_s < options_.patience_s) return false;
    throw Failure(fmt::format("isend() has given no request for {:.1f} s: {}", waited_s,
                              name(index, stream.posted)));
  }
  stream.posted_ns[slot] = now_ns();
  stream.filled = false;
  ++stream.posted;
  return true;
}

bool Endpoint::test_send(std::size_t index) {
  Stream& stream = streams_[index];
  if (stream.done == stream.posted) return false;
  const std::size_t slot = stream.done % static_cast<std::uint64_t>(plan_.depth);
  int done = 0;
  int size = -1;
  need(library_.test(stream.requests[slot], &done, &size), "test", index, stream.done);
  if (done == 0) {
    check_patience(stream, index, stream.done);
    return false;
  }
  const Message what = message(plan_, index, stream.done);
  // NCCL does not look at a send's size, so it may stay as it was.
  if (size != -1 && static_cast<std::size_t>(size) != what.bytes) {
    throw Failure(fmt::format("test() says {} bytes of a send of {}: {}", size, what.bytes,
                              name(index, stream.done)));
  }
  // The GPU may fill the slot again: whoever still reads it reads this.
  if (options_.check) fill_poison(slots_[index].at(slot), slots_[index].stride());
  ++stream.done;
  ++messages_done_;
  return true;
}

}  // namespace gradwire::nccl
