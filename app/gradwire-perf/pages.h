// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Memory of the transports that have no hugepages of their own. One thread.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace gradwire::perf {

inline constexpr std::size_t kHugePageBytes = 2 << 20;
[[nodiscard]] constexpr std::size_t whole_huge_pages(std::size_t bytes) noexcept {
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

/// Private pages, huge ones if the kernel has them, all faulted in.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();
  /// Once. @return `bytes` of zeros from the start of a huge page on.
  [[nodiscard]] Result<std::byte*> allocate(std::size_t bytes);
  /// What was allocated.
  [[nodiscard]] std::span<std::byte> all() const noexcept { return all_; }

 private:
  void* start_ = nullptr;
  std::size_t bytes_ = 0;
  std::span<std::byte> all_;
};

}  // namespace gradwire::perf
