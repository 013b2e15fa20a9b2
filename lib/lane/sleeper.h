// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One epoll set that a lane sleeps on: its bell, the doorbells of its clients, the rx interrupts
/// of its queues. One lane owns it.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace gradwire::lane {

class Sleeper {
 public:
  Sleeper() noexcept;
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// `fd` is an eventfd; each write to it ends a sleep, now or the next. It is never read.
  bool add(int fd) noexcept;
  void remove(int fd) noexcept;
  /// @return whether an fd ended the sleep before `sleep_ns` were over.
  bool sleep(TimeNs sleep_ns) noexcept;

 private:
  int epoll_fd_;
};

/// Lets short sleeps of the calling thread end when they should: the kernel's default slack is
/// 50 us.
void set_precise_sleeps() noexcept;

}  // namespace gradwire::lane
