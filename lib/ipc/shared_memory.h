// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Memory that the daemon makes and a client maps too: a memfd of hugepages, sealed against
/// growing, bound to a NUMA node and faulted in before anyone gets it, so that a lack of hugepages
/// is an error here and not a SIGBUS in a lane. The control thread creates and destroys it, unless
/// a function says otherwise; the bytes belong to whoever the daemon gives them to. Linux 5.14 or
/// later (MADV_POPULATE_WRITE).
///
/// Seals cannot prevent a client from punching holes into memory that it may write. The daemon's
/// next access then takes a new page from the pool; if none is free, it raises SIGBUS, and
/// lib/ipc/bus_guard.h maps ordinary zeros over all of it. A client may cut the memfd too, which
/// has the same end. It is not sealed against that, because take_back() cuts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "ipc/bus_guard.h"
#include "ipc/unique_fd.h"

namespace gradwire::ipc {

enum class PageKind : std::uint8_t {
  kHuge,              ///< the system's default hugepage size
  kOrdinaryForTests,  ///< for tests without hugepages; a daemon never uses it
};

/// Hugepages of the system's default size.
struct HugepagePool {
  std::uint64_t page_bytes = 0;
  std::uint64_t pages = 0;
  std::uint64_t free_pages = 0;  ///< that nobody has, nor has reserved
};
/// @param numa_node  of that node alone; -1: of all.
/// @return nothing if the kernel does not tell.
[[nodiscard]] std::optional<HugepagePool> read_hugepages(int numa_node);

struct SharedMemoryOptions {
  std::string name = "gradwire";  ///< shown in /proc/PID/maps
  std::uint64_t bytes = 0;        ///< rounded up to whole pages; not 0
  int numa_node = -1;             ///< -1: the kernel chooses
  std::uint32_t owner = 0;        ///< what ipc::take_hit() says if pages of it were removed
  PageKind pages = PageKind::kHuge;
};

class SharedMemory {
 public:
  /// @return kResourceExhausted if there are not enough hugepages (the text says how many there
  /// are and where), kSystem if a call failed.
  [[nodiscard]] static Result<SharedMemory> create(const SharedMemoryOptions& options);

  /// create() in parts, for callers that must not wait long: the control thread reserves the pages,
  /// any one thread faults them in piece by piece, and the control thread finishes.
  [[nodiscard]] static Result<SharedMemory> reserve(const SharedMemoryOptions& options);
  /// At most `bytes` more, in whole pages. @return whether all are there.
  [[nodiscard]] Result<bool> populate(std::uint64_t bytes);
  [[nodiscard]] Result<void> finish();
  /// Undoes that: from here on any thread may destroy it, and nobody touches its bytes.
  void abandon() noexcept { guard_ = GuardedRange(); }
  /// Unmaps it here and gives all of its pages back to the host, even those that other processes
  /// have mapped: what they touch of it from here on raises SIGBUS in them. Any thread, after
  /// abandon().
  void take_back() noexcept;

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t page_bytes() const noexcept { return page_bytes_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// A second descriptor, to be sent to the client.
  [[nodiscard]] UniqueFd duplicate_fd() const noexcept { return fd_.duplicate(); }
  /// The node of the first page according to the kernel; -1 if it does not tell.
  [[nodiscard]] int numa_node() const noexcept { return numa_node_; }

 private:
  void unmap() noexcept;

  UniqueFd fd_;
  GuardedRange guard_;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t populated_bytes_ = 0;
  std::uint64_t page_bytes_ = 0;
  int numa_node_ = -1;
  std::uint32_t owner_ = 0;
};

}  // namespace gradwire::ipc
