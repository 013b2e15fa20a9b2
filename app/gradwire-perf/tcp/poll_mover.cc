// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "tcp/stream_mover.h"

namespace gradwire::perf {
namespace {

class PollMover final : public StreamMover {
 public:
  PollMover(const StreamEnds& ends, const WaitOptions& wait) noexcept : ends_(ends), wait_(wait) {}

  Result<void> run(StreamOp& op) override {
    OpDeadline deadline(ends_, wait_);
    while (!op.finished()) {
      const auto moved = move(op);
      if (!moved) return tl::unexpected(moved.error());
      if (*moved) {
        deadline.moved();
        continue;
      }
      const auto sleeps = deadline.idle();
      if (!sleeps) return tl::unexpected(sleeps.error());
      if (*sleeps) sleep(op);
    }
    return release();
  }

 private:
  Result<bool> move(StreamOp& op) {
    bool moved = false;
    if (const auto bytes = op.to_send(); !bytes.empty()) {
      const auto taken = ends_.downstream->send(bytes);
      if (!taken) return fail_moving("sending to", ends_.next, errno);
      if (*taken > 0) op.sent(*taken);
      moved = *taken > 0;
    }
    if (const auto bytes = op.to_receive(); !bytes.empty()) {
      const auto got = ends_.upstream->receive(bytes);
      if (!got) return fail_moving("receiving from", ends_.previous, errno);
      if (*got > 0) op.received(*got);
      moved = moved || *got > 0;
    }
    return moved;
  }

  void sleep(StreamOp& op) {
    const bool sends = !op.to_send().empty();
    const bool receives = !op.to_receive().empty();
    pollfd both[2] = {{ends_.downstream->fd(), static_cast<short>(sends ? POLLOUT : 0), 0},
                      {ends_.upstream->fd(), static_cast<short>(receives ? POLLIN : 0), 0}};
    ::poll(both, 2, OpDeadline::kSleepMs);
  }

  /// The caller may overwrite its input afterwards, so the kernel must not refer to it any more.
  Result<void> release() {
    OpDeadline deadline(ends_, wait_);
    while (!ends_.downstream->released()) {
      if (const auto waited = deadline.idle(); !waited) {
        return fail(ErrorCode::kTimedOut,
                    "the kernel still reads what was sent with --tcp-zerocopy, after the timeout");
      }
    }
    return {};
  }

  const StreamEnds ends_;
  const WaitOptions wait_;
};

}  // namespace

Result<bool> OpDeadline::idle() {
  constexpr std::uint64_t kRoundsPerLook = 64;
  ++idle_rounds_;
  // Spins on a core of its own. On a shared core it gives others the core after some microseconds.
  const bool sleeps = !wait_.busy && idle_rounds_ >= kRoundsPerLook;
  if (!sleeps && idle_rounds_ % kRoundsPerLook != 0) return false;
  const auto now = Clock::now();
  if (end_ == Clock::time_point::max()) {
    end_ = now + std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(wait_.timeout_s));
  }
  if (now < end_) return sleeps;
  return fail(ErrorCode::kTimedOut,
              fmt::format("the op did not end within {} s: rank {} or rank {} is gone or slow",
                          wait_.timeout_s, ends_.previous, ends_.next));
}

tl::unexpected<Error> fail_moving(const char* verb, std::uint32_t rank, int error) {
  return fail(ErrorCode::kUnavailable,
              fmt::format("{} rank {}: {}", verb, rank, std::strerror(error)));
}

std::unique_ptr<StreamMover> make_poll_mover(const StreamEnds& ends, const WaitOptions& wait) {
  return std::make_unique<PollMover>(ends, wait);
}

}  // namespace gradwire::perf
