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

  /// `fd` is an eventfd, each write to which ends the current or the next sleep, or a socket that
  /// the lane's rounds empty. It is not read here: another socket, or a pipe, is full one day and
  /// wakes nobody from then on. One that was added before may be added again.
  bool add(int fd) noexcept;
  void remove(int fd) noexcept;
  /// @return whether an fd ended the sleep before `sleep_ns` were over.
  bool sleep(TimeNs sleep_ns) noexcept;

 private:
  int epoll_fd_;
};

/// While it lives, short sleeps of the calling thread end when they should: the kernel's default
/// slack is 50 us. Slack belongs to a thread (PR_SET_TIMERSLACK), so a library may change that of
/// its caller; the destructor restores it. One thread makes and destroys it.
class PreciseSleeps {
 public:
  PreciseSleeps() noexcept;
  ~PreciseSleeps();
  PreciseSleeps(const PreciseSleeps&) = delete;
  PreciseSleeps& operator=(const PreciseSleeps&) = delete;

 private:
  long before_ns_;
};

}  // namespace gradwire::lane
