// SPDX-License-Identifier: BSD-3-Clause
// Receives, in the order of recvProxyProgress(): posts for all streams at once, tests the oldest
// request, and gives a slot back when the GPU has taken what came.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "nccl/calls.h"
#include "nccl/draw.h"
#include "nccl/endpoint.h"
#include "nccl/failure.h"
#include "nccl/pattern.h"

namespace gradwire::nccl {
namespace {

/// NCCL's array of sizes has room for all channels, and NCCL adds up all of it.
constexpr std::size_t kSizes = 64;
constexpr std::size_t kSmallMessage = 16'384;  ///< what goes by protocol LL

}  // namespace

bool Endpoint::progress_receives() {
  if (post_receives()) return true;
  if (test_receives()) return true;
  return free_slots();
}

/// Stream 0 has the most steps, and the request of a group: streams that have ended are left out.
bool Endpoint::post_receives() {
  const std::uint64_t step = streams_[0].posted;
  const auto depth = static_cast<std::uint64_t>(plan_.depth);
  if (step == plan_.steps[0]) return false;
  std::array<void*, kSizes> data{};
  std::array<std::size_t, kSizes> sizes{};
  std::array<int, kSizes> tags{};
  std::array<void*, kSizes> registrations{};
  int count = 0;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (step >= plan_.steps[s]) continue;
    if (streams_[s].posted - streams_[s].done == depth) return false;
    const Message what = message(plan_, s, step);
    const auto i = static_cast<std::size_t>(count++);
    data[i] = slots_[s].at(step % depth) + what.recv_offset;
    sizes[i] = what.posted;
    tags[i] = tag(s);
    registrations[i] = registration(s, step % depth, what.own_registration);
    if (streams_[s].filled) continue;
    // Poison was put there when the slot became free: nobody may have written since.
    if (options_.check) {
      check_poison(slots_[s].at(step % depth), slots_[s].stride(), s, step,
                   "before its receive was posted");
    }
    streams_[s].filled = true;
    streams_[s].ready_ns = now_ns();
  }
  void*& request = streams_[0].requests[step % depth];
  const bool optional = count == 1 && sizes[0] <= kSmallMessage;
  request = optional ? nccl_net::optional_completion() : not_written();
  need(library_.irecv(comm_, count, data.data(), sizes.data(), tags.data(), registrations.data(),
                      &request),
       "irecv", 0, step);
  need_written(request, "irecv", 0, step);
  if (request == nullptr) {
    ++later_;
    const double waited_s = static_cast<double>(now_ns() - streams_[0].ready_ns) / 1e9;
    if (waited_s < options_.patience_s) return false;
    throw Failure(
        fmt::format("irecv() has given no request for {:.1f} s: {}", waited_s, name(0, step)));
  }
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (step >= plan_.steps[s]) continue;
    streams_[s].posted_ns[step % depth] = now_ns();
    streams_[s].filled = false;
    ++streams_[s].posted;
  }
  return true;
}

bool Endpoint::test_receives() {
  const std::uint64_t step = streams_[0].came;
  if (step == streams_[0].posted) return false;
  const std::size_t slot = step % static_cast<std::uint64_t>(plan_.depth);
  std::array<int, kSizes> sizes{};
  int done = 0;
  need(library_.test(streams_[0].requests[slot], &done, sizes.data()), "test", 0, step);
  if (done == 0) {
    check_patience(streams_[0], 0, step);
    return false;
  }
  std::size_t count = 0;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (step >= plan_.steps[s]) continue;
    check_received(s, step, sizes[count++]);
    const Message what = message(plan_, s, step);
    bytes_done_ += what.bytes;
    ++messages_done_;
    ++streams_[s].came;
    streams_[s].free_ns[slot] = now_ns();
    if (plan_.pause_us > 0) streams_[s].free_ns[slot] += mixed(what.key, 1) % plan_.pause_us * 1000;
  }
  if (std::any_of(sizes.begin() + static_cast<std::ptrdiff_t>(count), sizes.end(),
                  [](int size) { return size != 0; })) {
    throw Failure(fmt::format("test() wrote more than {} sizes: {}", count, name(0, step)));
  }
  return true;
}

void Endpoint::check_received(std::size_t stream, std::uint64_t sequence, int size) const {
  const Message what = message(plan_, stream, sequence);
  if (static_cast<std::size_t>(size) != what.bytes) {
    throw Failure(fmt::format("test() says {} bytes of a receive, {} were sent: {}", size,
                              what.bytes, name(stream, sequence)));
  }
  if (!options_.check) return;
  const std::size_t slot = sequence % static_cast<std::uint64_t>(plan_.depth);
  const char* start = slots_[stream].at(slot);
  const char* data = start + what.recv_offset;
  const std::size_t wrong = first_other_than_pattern(what.key, data, what.bytes);
  if (wrong != what.bytes) {
    throw Failure(
        fmt::format("byte {} of {} is wrong: {}", wrong, what.bytes, name(stream, sequence)));
  }
  check_poison(start, what.recv_offset, stream, sequence, "before the buffer");
  check_poison(data + what.bytes, slots_[stream].stride() - what.recv_offset - what.bytes, stream,
               sequence, "behind what came");
}

bool Endpoint::free_slots() {
  bool moved = false;
  const auto depth = static_cast<std::uint64_t>(plan_.depth);
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    Stream& stream = streams_[s];
    while (stream.done < stream.came && stream.free_ns[stream.done % depth] <= now_ns()) {
      const std::size_t slot = stream.done % depth;
      const Message what = message(plan_, s, stream.done);
      if (options_.check) {
        fill_poison(slots_[s].at(slot) + what.recv_offset, what.bytes);
      }
      if (s == 0) {
        need(library_.irecv_consumed(comm_, 1, stream.requests[slot]), "irecv_consumed", 0,
             stream.done);
      }
      ++stream.done;
      moved = true;
    }
  }
  return moved;
}

}  // namespace gradwire::nccl
