// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/unmap_guard.h"

#include "base/counter.h"

#include <fcntl.h>
#include <rte_alarm.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

using namespace gradwire::port;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

bool is_mapped(void* page) {
  unsigned char resident = 0;
  return mincore(page, static_cast<std::size_t>(getpagesize()), &resident) == 0;
}

void* map_page() {
  void* page = mmap(nullptr, static_cast<std::size_t>(getpagesize()), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  return page;
}

std::atomic<bool> unmapped{false};
/// Unmaps on the EAL's interrupt thread, as memif does.
void unmap(void* page) {
  munmap(page, static_cast<std::size_t>(getpagesize()));
  unmapped = true;
}

}  // namespace

TEST_CASE("the interrupt thread unmaps after every lane has ended its round") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("the sanitizer's own munmap() is used here");
  return;
#endif
  std::uint64_t lanes[2] = {};
  for (const std::uint64_t& rounds : lanes) watch_rounds(&rounds);
  void* page = map_page();
  unmapped = false;
  REQUIRE(rte_eal_alarm_set(1, unmap, page) == 0);
  // The wait is bounded to 250 ms; on a machine that slept longer this shows nothing.
  const auto start = steady_clock::now();
  const auto still_waits = [&] {
    const bool mapped = is_mapped(page);
    return mapped || steady_clock::now() - start > milliseconds(200);
  };
  std::this_thread::sleep_for(milliseconds(60));
  CHECK(still_waits());
  gradwire::count(lanes[0]);
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(still_waits());  // the other is still in its round
  gradwire::count(lanes[1]);
  for (int i = 0; i < 5'000 && !unmapped; ++i) std::this_thread::sleep_for(milliseconds(1));
  CHECK(unmapped);
  CHECK_FALSE(is_mapped(page));

  // A lane that stands still holds it up for a quarter of a second, not for ever.
  page = map_page();
  unmapped = false;
  REQUIRE(rte_eal_alarm_set(1, unmap, page) == 0);
  for (int i = 0; i < 20'000 && !unmapped; ++i) std::this_thread::sleep_for(milliseconds(1));
  CHECK(unmapped);
  CHECK_FALSE(is_mapped(page));
  for (const std::uint64_t& rounds : lanes) forget_rounds(&rounds);
}

namespace {

std::atomic<bool> closed{false};
void close_file(void* fd) {
  close(*static_cast<int*>(fd));
  closed = true;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("the interrupt thread closes a file after every lane has ended its round") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("the sanitizer's own close() is used here");
  return;
#endif
  std::uint64_t rounds = 0;
  watch_rounds(&rounds);
  int fd = eventfd(0, EFD_NONBLOCK);
  REQUIRE(fd >= 0);
  const auto start = steady_clock::now();
  REQUIRE(rte_eal_alarm_set(1, close_file, &fd) == 0);
  std::this_thread::sleep_for(milliseconds(60));
  // As above: the wait is bounded.
  const bool still_open = is_open(fd);
  CHECK((still_open || steady_clock::now() - start > milliseconds(200)));
  gradwire::count(rounds);
  for (int i = 0; i < 5'000 && !closed; ++i) std::this_thread::sleep_for(milliseconds(1));
  CHECK(closed);
  CHECK_FALSE(is_open(fd));
  // Other threads close at once.
  fd = eventfd(0, EFD_NONBLOCK);
  CHECK(close(fd) == 0);
  CHECK_FALSE(is_open(fd));
  forget_rounds(&rounds);
}

TEST_CASE("other threads unmap at once, whatever the lanes do") {
  std::uint64_t rounds = 0;
  watch_rounds(&rounds);
  void* page = map_page();
  CHECK(munmap(page, static_cast<std::size_t>(getpagesize())) == 0);
  CHECK_FALSE(is_mapped(page));
  forget_rounds(&rounds);
}
