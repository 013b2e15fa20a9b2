// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How transport tcp moves the bytes of its ops: by system calls on non-blocking sockets, or by
/// io_uring. One thread, the caller's; a mover allocates when it is made, and nothing per op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "tcp/stream_op.h"
#include "tcp/tcp_socket.h"

namespace gradwire::perf {

/// This rank's two connections, which must be established and must outlive the mover.
struct StreamEnds {
  TcpSocket* downstream = nullptr;  ///< to `next`
  TcpSocket* upstream = nullptr;    ///< from `previous`; with two ranks the same socket
  std::uint32_t next = 0;
  std::uint32_t previous = 0;
};

struct WaitOptions {
  bool busy = true;       ///< spins for ever, else sleeps after some microseconds
  double timeout_s = 60;  ///< of an op, from the first time on that it has to wait
};

class StreamMover {
 public:
  virtual ~StreamMover() = default;
  /// Runs the op to its end. Afterwards the kernel refers to none of its memory.
  /// @return kTimedOut, or kUnavailable with the rank that is gone.
  [[nodiscard]] virtual Result<void> run(StreamOp& op) = 0;
};

/// Notices when an op may wait no longer. Looks at the clock once in 64 idle rounds.
class OpDeadline {
 public:
  OpDeadline(const StreamEnds& ends, const WaitOptions& wait) noexcept : ends_(ends), wait_(wait) {}
  void moved() noexcept { idle_rounds_ = 0; }
  /// After a round in which nothing moved. @return whether the caller should sleep now, at most
  /// kSleepMs; kTimedOut when the op's time is over.
  [[nodiscard]] Result<bool> idle();
  static constexpr int kSleepMs = 100;

 private:
  const StreamEnds& ends_;
  const WaitOptions& wait_;
  std::uint64_t idle_rounds_ = 0;
  Clock::time_point end_ = Clock::time_point::max();  ///< set when the op first has to wait
};

/// kUnavailable: "sending to rank 1: Connection reset by peer".
[[nodiscard]] tl::unexpected<Error> fail_moving(const char* verb, std::uint32_t rank, int error);

/// send(), recv() and poll().
[[nodiscard]] std::unique_ptr<StreamMover> make_poll_mover(const StreamEnds& ends,
                                                           const WaitOptions& wait);

struct UringOptions {
  /// One receive request stays armed, and the kernel puts what comes into buffers of its choice,
  /// from where it is copied. Otherwise each request names the op's own memory.
  bool multishot = false;
  /// Sends pieces of kZerocopyBytes and more with IORING_OP_SEND_ZC.
  bool zerocopy = false;
  /// Where all ops lie; registered with the kernel if `zerocopy`, so that it does not pin pages for
  /// each send.
  std::span<std::byte> memory;
};

/// @return kUnsupported, with the reason, if this program was built without liburing or the kernel
/// refuses io_uring or what the options need of it.
[[nodiscard]] Result<std::unique_ptr<StreamMover>> make_uring_mover(const StreamEnds& ends,
                                                                    const WaitOptions& wait,
                                                                    const UringOptions& options);

}  // namespace gradwire::perf
