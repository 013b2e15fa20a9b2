// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Keeps a client from killing the daemon through memory that both map: if a page is missing (the
/// client punched a hole and no hugepage is left to fill it), the next access raises SIGBUS. The
/// handler maps an ordinary page of zeros there and remembers the range, so that the lane continues
/// and the control thread drops the client. A SIGBUS anywhere else is still fatal.
///
/// Ranges are added and removed by the control thread; the handler runs in whichever thread faults
/// and takes no lock. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace gradwire::ipc {

inline constexpr std::size_t kMaxGuardedRanges = 16384;

/// Installs the handler for the whole process; a second call does nothing. SharedMemory guards its
/// mappings itself, but without the handler that has no effect.
[[nodiscard]] Result<void> install_bus_guard();

/// One guarded mapping, in whole pages of `page_bytes`. Empty if the table was full.
class GuardedRange {
 public:
  GuardedRange() = default;
  GuardedRange(const void* base, std::uint64_t bytes, std::uint64_t page_bytes) noexcept;
  GuardedRange(GuardedRange&& other) noexcept;
  GuardedRange& operator=(GuardedRange&& other) noexcept;
  ~GuardedRange();

  [[nodiscard]] explicit operator bool() const noexcept { return slot_ >= 0; }
  /// @return whether a page of it was replaced.
  [[nodiscard]] bool was_hit() const noexcept;

 private:
  int slot_ = -1;
};

}  // namespace gradwire::ipc
