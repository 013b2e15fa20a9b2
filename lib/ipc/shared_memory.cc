// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/system_error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace gradwire::ipc {
namespace {

constexpr int kMaxNumaNodes = 1024;
constexpr std::size_t kBitsPerWord = 8 * sizeof(unsigned long);

/// "12 free" of one node, or of all if `node` is negative.
std::string free_hugepages(int node, std::uint64_t page_bytes) {
  const std::string pool = fmt::format("hugepages/hugepages-{}kB/free_hugepages", page_bytes >> 10);
  const std::string path = node < 0 ? "/sys/kernel/mm/" + pool
                                    : fmt::format("/sys/devices/system/node/node{}/{}", node, pool);
  std::string count;
  if (!(std::ifstream(path) >> count)) count = "an unknown number";
  return fmt::format("{} free{}", count, node < 0 ? "" : fmt::format(" on NUMA node {}", node));
}

tl::unexpected<Error> no_pages(int numa_node, std::uint64_t bytes, std::uint64_t page_bytes) {
  return fail(ErrorCode::kResourceExhausted,
              fmt::format("{} bytes need {} hugepages of {} KiB, but there are only {}; reserve "
                          "more (vm.nr_hugepages, or the node's nr_hugepages)",
                          bytes, bytes / page_bytes, page_bytes >> 10,
                          free_hugepages(numa_node, page_bytes)));
}

/// mbind(2), without libnuma: see lib/ipc/meson.build.
Result<void> bind_to_node(void* data, std::uint64_t bytes, int node) {
  if (node < 0) return {};
  if (node >= kMaxNumaNodes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("NUMA node {}, must be below {}", node, kMaxNumaNodes));
  }
  unsigned long mask[kMaxNumaNodes / kBitsPerWord] = {};
  mask[static_cast<std::size_t>(node) / kBitsPerWord] |=
      1ul << (static_cast<std::size_t>(node) % kBitsPerWord);
  // The kernel uses one bit less than this number says.
  if (::syscall(SYS_mbind, data, bytes, MPOL_BIND, mask, kMaxNumaNodes + 1, 0) != 0) {
    return system_error(fmt::format("binding {} bytes to NUMA node {}", bytes, node));
  }
  return {};
}

int node_of(void* address) noexcept {
  int node = -1;
  if (::syscall(SYS_get_mempolicy, &node, nullptr, 0, address, MPOL_F_NODE | MPOL_F_ADDR) != 0) {
    return -1;
  }
  return node;
}

}  // namespace

std::optional<HugepagePool> read_hugepages(int numa_node) {
  HugepagePool pool;
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;) {
    if (word != "Hugepagesize:") continue;
    std::uint64_t kib = 0;
    if (info >> kib) pool.page_bytes = kib << 10;
    break;
  }
  if (pool.page_bytes == 0) return std::nullopt;
  const std::string name = fmt::format("hugepages/hugepages-{}kB/", pool.page_bytes >> 10);
  const std::string all = "/sys/kernel/mm/" + name;
  const std::string folder =
      numa_node < 0 ? all : fmt::format("/sys/devices/system/node/node{}/{}", numa_node, name);
  std::uint64_t reserved = 0;  // the kernel tells it of all nodes alone
  if (!(std::ifstream(folder + "nr_hugepages") >> pool.pages) ||
      !(std::ifstream(folder + "free_hugepages") >> pool.free_pages) ||
      !(std::ifstream(all + "resv_hugepages") >> reserved)) {
    return std::nullopt;
  }
  pool.free_pages -= std::min(pool.free_pages, reserved);
  return pool;
}

Result<SharedMemory> SharedMemory::create(const SharedMemoryOptions& options) {
  auto memory = reserve(options);
  if (!memory) return memory;
  if (auto all = memory->populate(memory->bytes()); !all) return tl::unexpected(all.error());
  if (auto finished = memory->finish(); !finished) return tl::unexpected(finished.error());
  return memory;
}

Result<SharedMemory> SharedMemory::reserve(const SharedMemoryOptions& options) {
  const bool huge = options.pages == PageKind::kHuge;
  SharedMemory memory;
  memory.fd_ = UniqueFd(::memfd_create(
      options.name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0u)));
  if (!memory.fd_) return system_error("memfd_create of hugepages");
  struct statfs info = {};
  if (::fstatfs(memory.fd(), &info) != 0) return system_error("fstatfs of a memfd");
  const auto page_bytes = static_cast<std::uint64_t>(info.f_bsize);
  constexpr std::uint64_t kMostBytes = 1ull << 46;
  if (options.bytes == 0 || options.bytes > kMostBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} bytes of memory, must be 1 to {}", options.bytes, kMostBytes));
  }
  const std::uint64_t bytes = (options.bytes + page_bytes - 1) / page_bytes * page_bytes;
  if (::ftruncate(memory.fd(), static_cast<off_t>(bytes)) != 0) {
    return system_error(fmt::format("ftruncate of a memfd to {} bytes", bytes));
  }
  if (::fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return system_error("sealing a memfd");
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
  if (data == MAP_FAILED) {
    if (errno == ENOMEM) return no_pages(options.numa_node, bytes, page_bytes);
    return system_error(fmt::format("mmap of {} bytes", bytes));
  }
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  memory.page_bytes_ = page_bytes;
  memory.numa_node_ = options.numa_node;
  memory.owner_ = options.owner;
  if (auto bound = bind_to_node(data, bytes, options.numa_node); !bound) {
    return tl::unexpected(bound.error());
  }
  // No child may share the pages: a copy-on-write in the daemon would move them.
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) return system_error("madvise(MADV_DONTFORK)");
  return memory;
}

Result<bool> SharedMemory::populate(std::uint64_t bytes) {
  const std::uint64_t whole = (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  const std::uint64_t piece = std::min(whole, bytes_ - populated_bytes_);
  if (piece > 0 && ::madvise(data_ + populated_bytes_, piece, MADV_POPULATE_WRITE) != 0) {
    if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) {
      return no_pages(numa_node_, bytes_, page_bytes_);
    }
    return system_error("madvise(MADV_POPULATE_WRITE), which needs Linux 5.14");
  }
  populated_bytes_ += piece;
  return populated_bytes_ == bytes_;
}

Result<void> SharedMemory::finish() {
  numa_node_ = node_of(data_);
  guard_ = GuardedRange(data_, bytes_, page_bytes_, owner_);
  if (!guard_) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("the daemon already has {} shared mappings, which is the limit",
                            kMaxGuardedRanges));
  }
  return {};
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  fd_ = std::move(other.fd_);
  guard_ = std::move(other.guard_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  populated_bytes_ = std::exchange(other.populated_bytes_, 0);
  page_bytes_ = std::exchange(other.page_bytes_, 0);
  numa_node_ = std::exchange(other.numa_node_, -1);
  owner_ = std::exchange(other.owner_, 0);
  return *this;
}

SharedMemory::~SharedMemory() { unmap(); }

void SharedMemory::take_back() noexcept {
  unmap();
  if (fd_ && ::ftruncate(fd_.get(), 0) == 0) bytes_ = populated_bytes_ = 0;
}

void SharedMemory::unmap() noexcept {
  guard_ = GuardedRange();
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
}

}  // namespace gradwire::ipc
