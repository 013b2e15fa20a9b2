// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Files by which processes share what the fake libcuda.so.1 allocates: a memfd each, and a handle
/// that says where another process finds it, /proc/PID/fd. A last page of the file, outside the
/// allocation, has a number that no other allocation has: so a handle of memory that is gone is
/// found out. For tests alone; any thread.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "fake_cuda.h"

namespace gradwire::fake_cuda {

inline constexpr std::size_t kPage = 4096;

struct Handle {
  static constexpr std::uint64_t kMemory = 0x6d656d, kEvent = 0x657674;
  std::uint64_t kind = 0;
  std::uint64_t nonce = 0;
  std::uint64_t bytes = 0;
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  unsigned char rest[32] = {};
};
static_assert(sizeof(Handle) == 64);

/// A file of `bytes` and a page that has the nonce.
struct Shared {
  int fd = -1;
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::uint64_t nonce = 0;

  [[nodiscard]] std::size_t mapped() const { return bytes + kPage; }
  void release() const {
    munmap(base, mapped());
    if (fd >= 0) close(fd);
  }
};

inline std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

inline bool make_shared_file(std::size_t bytes, Shared& out) {
  static std::atomic<std::uint64_t> next{1};
  out.bytes = round_up(bytes);
  out.fd = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (out.fd < 0 || ftruncate(out.fd, static_cast<off_t>(out.mapped())) != 0) return false;
  void* base = mmap(nullptr, out.mapped(), PROT_READ | PROT_WRITE, MAP_SHARED, out.fd, 0);
  if (base == MAP_FAILED) return false;
  out.base = static_cast<std::byte*>(base);
  out.nonce = static_cast<std::uint64_t>(getpid()) << 32 | next.fetch_add(1);
  std::memcpy(out.base + out.bytes, &out.nonce, sizeof out.nonce);
  return true;
}

inline Handle handle_of(std::uint64_t kind, const Shared& shared) {
  Handle handle;
  handle.kind = kind;
  handle.nonce = shared.nonce;
  handle.bytes = shared.bytes;
  handle.pid = getpid();
  handle.fd = shared.fd;
  return handle;
}

inline int open_handle(std::uint64_t kind, const Handle& handle, Shared& out) {
  if (handle.kind != kind) return kInvalidValue;
  // As CUDA has it: not in the process that exported it.
  if (handle.pid == getpid()) return kInvalidContext;
  const std::string path =
      "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInvalidHandle;
  struct stat info = {};
  const bool fits =
      fstat(fd, &info) == 0 && static_cast<std::uint64_t>(info.st_size) == handle.bytes + kPage;
  out.bytes = handle.bytes;
  void* base =
      fits ? mmap(nullptr, out.mapped(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (base == MAP_FAILED) return kInvalidHandle;
  out.base = static_cast<std::byte*>(base);
  std::memcpy(&out.nonce, out.base + out.bytes, sizeof out.nonce);
  if (out.nonce == handle.nonce) return kSuccess;
  out.release();
  return kInvalidHandle;
}

}  // namespace gradwire::fake_cuda
