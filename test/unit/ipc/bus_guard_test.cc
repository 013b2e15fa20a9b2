// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/bus_guard.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "ipc/unique_fd.h"

namespace gradwire::ipc {
namespace {

constexpr std::size_t kPage = 4096;

/// A mapping whose file a test shortens: an access then fails as it does at a hole without a page.
struct Mapping {
  Mapping() : fd(::memfd_create("bus_guard_test", MFD_CLOEXEC)) {
    REQUIRE(::ftruncate(fd.get(), 4 * kPage) == 0);
    data = static_cast<char*>(
        ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
    REQUIRE(data != MAP_FAILED);
  }
  ~Mapping() { ::munmap(data, 4 * kPage); }
  UniqueFd fd;
  char* data = nullptr;
};

}  // namespace

TEST_CASE("a range of which a page is gone becomes zeros, and it is told") {
  REQUIRE(install_bus_guard());
  Mapping mapping;
  const GuardedRange guard(mapping.data, 4 * kPage, kPage);
  REQUIRE(guard);
  mapping.data[0] = 'a';
  mapping.data[2 * kPage + 5] = 'b';
  CHECK_FALSE(guard.was_hit());
  REQUIRE(::ftruncate(mapping.fd.get(), kPage) == 0);
  volatile char* data = mapping.data;
  CHECK(data[2 * kPage + 5] == 0);
  CHECK(guard.was_hit());
  data[2 * kPage + 5] = 'c';
  CHECK(data[2 * kPage + 5] == 'c');
  CHECK(data[0] == 0);
}

TEST_CASE("a range that is removed is guarded no more, and its slot serves again") {
  REQUIRE(install_bus_guard());
  Mapping mapping;
  {
    GuardedRange guard(mapping.data, 4 * kPage, kPage);
    GuardedRange moved(std::move(guard));
    CHECK_FALSE(guard);  // NOLINT: what a moved-from range is, is what is tested
    CHECK(moved);
  }
  REQUIRE(::ftruncate(mapping.fd.get(), 0) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Without Catch2's own signal handler.
    volatile char* data = mapping.data;
    static_cast<void>(data[0]);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGBUS);
}

TEST_CASE("a range is replaced as a whole, however many of its pages are gone") {
  REQUIRE(install_bus_guard());
  constexpr std::size_t kPages = 4000;
  const UniqueFd fd(::memfd_create("bus_guard_test", MFD_CLOEXEC));
  REQUIRE(::ftruncate(fd.get(), kPages * kPage) == 0);
  char* data = static_cast<char*>(
      ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  REQUIRE(data != MAP_FAILED);
  const auto maps = [] {
    std::ifstream lines("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(lines), {}, '\n');
  };
  {
    const GuardedRange guard(data, kPages * kPage, kPage, 5);
    REQUIRE(::ftruncate(fd.get(), 0) == 0);
    const auto before = maps();
    for (std::size_t page = 0; page < kPages; page += 2) {
      const volatile char byte = data[page * kPage];
      REQUIRE(byte == 0);
    }
    CHECK(maps() <= before + 2);
  }
  std::uint32_t owner = 0;
  while (take_hit(owner)) continue;
  ::munmap(data, kPages * kPage);
}

TEST_CASE("the owner of a range that was replaced is told once, and never of another's") {
  REQUIRE(install_bus_guard());
  std::uint32_t owner = 0;
  while (take_hit(owner)) continue;
  Mapping mapping;
  Mapping other;
  {
    const GuardedRange guard(mapping.data, 4 * kPage, kPage, 17);
    const GuardedRange second(other.data, 4 * kPage, kPage, 18);
    CHECK_FALSE(has_hits());
    for (const Mapping* each : {&mapping, &other}) {
      REQUIRE(::ftruncate(each->fd.get(), 0) == 0);
      volatile char* data = each->data;
      data[0] = 1;
      data[3 * kPage] = 1;
    }
    CHECK(has_hits());
  }
  // The ranges are gone, and their slots are not taken before their hits are.
  Mapping third;
  const GuardedRange later(third.data, 4 * kPage, kPage, 19);
  std::set<std::uint32_t> owners;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(take_hit(owner));
    owners.insert(owner);
  }
  CHECK(owners == std::set<std::uint32_t>{17, 18});
  CHECK_FALSE(take_hit(owner));
  CHECK_FALSE(has_hits());
  CHECK_FALSE(later.was_hit());
}

TEST_CASE("the table of ranges is bounded") {
  std::vector<GuardedRange> ranges;
  static char page[kPage];
  for (std::size_t i = 0; i < kMaxGuardedRanges; ++i) ranges.emplace_back(page, kPage, kPage);
  CHECK_FALSE(GuardedRange(page, kPage, kPage));
  ranges.pop_back();
  CHECK(GuardedRange(page, kPage, kPage));
}

}  // namespace gradwire::ipc
