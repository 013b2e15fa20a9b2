// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

namespace gradwire::ipc {
namespace {

long free_hugepages() {
  std::string word;
  std::ifstream info("/proc/meminfo");
  while (info >> word) {
    long count = 0;
    if (word == "HugePages_Free:" && info >> count) return count;
  }
  return 0;
}

void check_sealed(const SharedMemory& memory) {
  CHECK(::ftruncate(memory.fd(), static_cast<off_t>(2 * memory.bytes())) != 0);
  CHECK(::fcntl(memory.fd(), F_GET_SEALS) == (F_SEAL_GROW | F_SEAL_SEAL));
}

void check_shared(const SharedMemory& memory) {
  CHECK(std::all_of(memory.data(), memory.data() + memory.bytes(),
                    [](std::byte b) { return b == std::byte{0}; }));
  const UniqueFd fd = memory.duplicate_fd();
  REQUIRE(fd);
  void* other = ::mmap(nullptr, memory.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  REQUIRE(other != MAP_FAILED);
  memory.data()[memory.bytes() - 1] = std::byte{42};
  CHECK(static_cast<std::byte*>(other)[memory.bytes() - 1] == std::byte{42});
  ::munmap(other, memory.bytes());
}

}  // namespace

TEST_CASE("ordinary pages only where a test asks for them") {
  SharedMemoryOptions options;
  options.bytes = 5000;
  options.pages = PageKind::kOrdinaryForTests;
  const auto memory = SharedMemory::create(options);
  REQUIRE(memory);
  CHECK(memory->bytes() == 8192);
  CHECK(memory->page_bytes() == 4096);
  check_sealed(*memory);
  check_shared(*memory);
}

TEST_CASE("memory moves, and is unmapped once") {
  SharedMemoryOptions options;
  options.bytes = 4096;
  options.pages = PageKind::kOrdinaryForTests;
  auto memory = SharedMemory::create(options);
  REQUIRE(memory);
  std::byte* data = memory->data();
  SharedMemory moved = std::move(*memory);
  CHECK(moved.data() == data);
  CHECK(memory->data() == nullptr);
  moved = SharedMemory();
  unsigned char resident = 0;
  CHECK(::mincore(data, 4096, &resident) != 0);
}

TEST_CASE("memory that is taken back has no pages, whoever has it mapped") {
  SharedMemoryOptions options;
  options.bytes = 3 << 20;
  options.pages = PageKind::kOrdinaryForTests;
  auto memory = SharedMemory::create(options);
  REQUIRE(memory);
  std::byte* const data = memory->data();
  const UniqueFd fd = memory->duplicate_fd();
  void* other = ::mmap(nullptr, memory->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  REQUIRE(other != MAP_FAILED);
  struct stat info = {};
  REQUIRE(::fstat(fd.get(), &info) == 0);
  CHECK(info.st_blocks * 512 == 3 << 20);
  memory->abandon();
  memory->take_back();
  REQUIRE(::fstat(fd.get(), &info) == 0);
  CHECK(info.st_blocks == 0);
  CHECK(::ftruncate(fd.get(), 4096) != 0);
  unsigned char resident = 0;
  CHECK(::mincore(data, 4096, &resident) != 0);
  ::munmap(other, 3 << 20);
}

TEST_CASE("hugepages are mapped, bound and faulted in") {
  if (free_hugepages() < 2) {
    WARN("skipped: fewer than 2 free hugepages; reserve some with vm.nr_hugepages");
    return;
  }
  SharedMemoryOptions options;
  options.bytes = (2u << 20) + 1;
  options.numa_node = 0;
  const auto memory = SharedMemory::create(options);
  INFO((memory ? "" : memory.error().message));
  REQUIRE(memory);
  CHECK(memory->page_bytes() >= 2u << 20);
  CHECK(memory->bytes() % memory->page_bytes() == 0);
  CHECK(memory->numa_node() == 0);
  check_sealed(*memory);
  check_shared(*memory);
}

TEST_CASE("too few hugepages are an error that says so") {
  SharedMemoryOptions options;
  options.bytes = 1ull << 45;
  const auto memory = SharedMemory::create(options);
  REQUIRE_FALSE(memory);
  CHECK(memory.error().code == ErrorCode::kResourceExhausted);
  CHECK_THAT(memory.error().message, Catch::Contains("free"));
}

TEST_CASE("sizes and nodes out of bounds are refused") {
  SharedMemoryOptions options;
  options.pages = PageKind::kOrdinaryForTests;
  CHECK(SharedMemory::create(options).error().code == ErrorCode::kInvalidArgument);
  options.bytes = (1ull << 46) + 1;
  CHECK(SharedMemory::create(options).error().code == ErrorCode::kInvalidArgument);
  options.bytes = 4096;
  options.numa_node = 5000;
  CHECK(SharedMemory::create(options).error().code == ErrorCode::kInvalidArgument);
  options.numa_node = 1023;  // no machine of ours has it
  CHECK(SharedMemory::create(options).error().code == ErrorCode::kSystem);
}

}  // namespace gradwire::ipc
