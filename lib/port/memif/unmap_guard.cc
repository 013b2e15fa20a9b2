// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/unmap_guard.h"

#include <rte_interrupts.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <mutex>

#include "base/counter.h"
#include "port/interrupt_thread.h"

namespace gradwire::port {
namespace {

// Lanes of one process. A test may have several daemons' lanes.
constexpr std::size_t kMost = 64;
constexpr int kLooks = 2'500;
constexpr long kLookNs = 100'000;

std::mutex mutex;
std::array<const std::uint64_t*, kMost> watched{};
std::size_t watched_count = 0;

}  // namespace

void watch_rounds(const std::uint64_t* rounds) {
  const std::scoped_lock lock(mutex);
  if (watched_count < kMost) watched[watched_count++] = rounds;
}

void forget_rounds(const std::uint64_t* rounds) {
  const std::scoped_lock lock(mutex);
  auto* const end = watched.begin() + watched_count;
  auto* const found = std::find(watched.begin(), end, rounds);
  if (found != end) *found = watched[--watched_count];
}

void wait_for_rounds() noexcept {
  // Held until the end, so that forget_rounds() waits and `rounds` stay valid.
  const std::scoped_lock lock(mutex);
  std::array<std::uint64_t, kMost> before;
  for (std::size_t i = 0; i < watched_count; ++i) before[i] = read_counter(*watched[i]);
  for (int look = 0; look < kLooks; ++look) {
    // A round is counted when it ends, and any later round sees that the link is down.
    bool all = true;
    for (std::size_t i = 0; i < watched_count; ++i) {
      all = all && read_counter(*watched[i]) != before[i];
    }
    if (all) return;
    const timespec pause{0, kLookNs};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace gradwire::port

// AddressSanitizer and ThreadSanitizer need their own munmap() and close().
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GRADWIRE_SANITIZED
#endif
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(GRADWIRE_SANITIZED)
extern "C" [[gnu::visibility("default")]] int munmap(void* address, std::size_t bytes) noexcept {
  // If a port is stopped on purpose, no lane uses it, and a lane may be the one that waits for the
  // stop.
  if (rte_thread_is_intr() != 0 && !gradwire::port::is_work_asked_for()) {
    gradwire::port::wait_for_rounds();
  }
  return static_cast<int>(syscall(SYS_munmap, address, bytes));
}

extern "C" [[gnu::visibility("default")]] int close(int fd) {
  // A lane may be about to write to a ring's eventfd, whose number somebody else gets next.
  if (rte_thread_is_intr() != 0 && !gradwire::port::is_work_asked_for()) {
    gradwire::port::wait_for_rounds();
  }
  return static_cast<int>(syscall(SYS_close, fd));
}
#endif
