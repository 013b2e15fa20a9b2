// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Wakes a sleeping thread when another has put something into one of its rings. It is a flag and
/// an eventfd, so that a producer makes a system call only if the thread sleeps, and only the first
/// such producer does.
///
/// The sleeper: sleeping(true), looks at its rings once more, sleeps on fd(), sleeping(false),
/// drain(). A producer: enqueues, then ring(). Any thread may ring.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace gradwire::command {

class WakeBell {
 public:
  WakeBell() noexcept : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~WakeBell() {
    if (fd_ >= 0) close(fd_);
  }
  WakeBell(const WakeBell&) = delete;
  WakeBell& operator=(const WakeBell&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }

  /// Sequentially consistent, like ring(), so that either the sleeper sees what was enqueued, or
  /// the producer sees that it sleeps.
  void set_sleeping(bool sleeping) noexcept {
    sleeping_.store(sleeping ? 1 : 0, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void ring() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst) == 0) return;
    // Only the producer that clears the flag writes to the eventfd. The sleeper sets the flag
    // before it sleeps again and then checks its rings, so it misses nothing that came in between.
    if (sleeping_.exchange(0, std::memory_order_seq_cst) != 0) force();
  }
  /// Rings even if nobody sleeps.
  void force() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored = write(fd_, &one, sizeof one);
  }
  void drain() noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t ignored = read(fd_, &count, sizeof count);
  }

 private:
  int fd_;
  std::atomic<std::uint32_t> sleeping_{0};
};

}  // namespace gradwire::command
