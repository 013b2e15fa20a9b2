// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Shared memory that the library keeps for ops whose own memory the daemon cannot see: small
/// pieces cut from slabs, large pieces whole. It only keeps books; whoever calls allocates and
/// frees at the daemon. One thread at a time (the client locks).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "gpu/cuda_device.h"

namespace gradwire::client {

/// Shared memory mapped here: of the host, or of a GPU.
struct Mapping {
  Mapping(std::byte* start, std::uint64_t size, std::uint32_t daemon_handle, std::int32_t node)
      : address(start), bytes(size), handle(daemon_handle), numa_node(node) {}
  Mapping(std::unique_ptr<gpu::ImportedMemory> memory, std::uint64_t size,
          std::uint32_t daemon_handle, std::int32_t node)
      : address(memory->address()),
        bytes(size),
        handle(daemon_handle),
        numa_node(node),
        on_gpu(std::move(memory)) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  /// Unmaps, or closes.
  ~Mapping();

  /// Bytes between here and anywhere. Waits for the end.
  [[nodiscard]] Result<void> copy(void* to, const void* from, std::uint64_t count) const;
  /// Of the host's memory: lets CUDA copy to and from it without the CPU, from now on. Any thread.
  [[nodiscard]] Result<void> pin(gpu::Device& device);

  std::byte* const address;
  const std::uint64_t bytes;
  const std::uint32_t handle;
  const std::int32_t numa_node;
  std::unique_ptr<gpu::ImportedMemory> on_gpu;
  std::uint32_t users = 0;  ///< unfinished ops that use it; under the client's lock

 private:
  std::mutex pin_mutex_;
  std::unique_ptr<gpu::HostRegistration> pinned_;
};

/// A piece of a mapping that belongs to one op.
struct StagingSlot {
  std::shared_ptr<Mapping> mapping;  ///< none: no slot
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  [[nodiscard]] std::byte* address() const noexcept { return mapping->address + offset; }
};

class StagingPool {
 public:
  static constexpr std::uint64_t kSmallestSlab = 2u << 20;
  static constexpr std::uint64_t kSlotsPerSlab = 8;  ///< at least: a client's regions are few
  static constexpr std::uint64_t kSmallestSlot = 4096;
  static constexpr std::uint64_t kLargestSmallSlot = 1u << 20;

  explicit StagingPool(std::uint64_t cache_bytes) : cache_bytes_(cache_bytes) {}

  /// A free piece of at least `bytes`; nothing if allocation_bytes(bytes) must be allocated and
  /// given to adopt().
  [[nodiscard]] std::optional<StagingSlot> take(std::uint64_t bytes);
  [[nodiscard]] static std::uint64_t allocation_bytes(std::uint64_t bytes) noexcept;
  /// Adds a mapping of at least allocation_bytes(bytes) and takes a piece of it.
  [[nodiscard]] StagingSlot adopt(std::shared_ptr<Mapping> mapping, std::uint64_t bytes);
  /// @return a mapping that is more than the cache may keep, to be freed at the daemon; or none.
  [[nodiscard]] std::shared_ptr<Mapping> give_back(StagingSlot slot);
  /// Large pieces that nobody uses: for when memory is short.
  [[nodiscard]] std::vector<std::shared_ptr<Mapping>> drop_cache();
  /// Bytes of all mappings, in use or not.
  [[nodiscard]] std::uint64_t total_bytes() const noexcept { return total_bytes_; }

 private:
  static constexpr std::size_t kClasses = 9;  // 4 KiB ... 1 MiB
  static std::size_t class_of(std::uint64_t bytes) noexcept;

  std::array<std::vector<StagingSlot>, kClasses> small_free_;
  std::vector<std::shared_ptr<Mapping>> large_free_;
  std::uint64_t large_free_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t cache_bytes_;
};

}  // namespace gradwire::client
