// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How a client wakes a lane that sleeps: an eventfd, which the lane waits for and never reads. So
/// each ring wakes it, however many came before, and nothing that a client does to the open file,
/// which both share, can hold the lane up. (A socket that nobody reads is full after some hundred
/// rings, and wakes nobody from then on.)
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "ipc/unique_fd.h"

namespace gradwire::ipc {

/// @return an eventfd, closed on exec; empty if the system refuses, with errno set.
[[nodiscard]] inline UniqueFd make_doorbell() noexcept {
  return UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

/// Wakes whoever waits for `doorbell`. It never blocks. The counter of an eventfd is full after
/// 2^64 - 2 rings, so a failure means that this process has closed or filled it, which only hurts
/// this process.
inline void ring(const UniqueFd& doorbell) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(doorbell.get(), &one, sizeof(one));
}

}  // namespace gradwire::ipc
