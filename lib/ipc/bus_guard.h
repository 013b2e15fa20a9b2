// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Keeps a client from killing the daemon through memory that both map: if a page is missing (the
/// client punched a hole and no hugepage is left to fill it), the next access raises SIGBUS. The
/// handler maps ordinary zeros over the whole range, so that the lane continues, and notes whose it
/// is, so that the command lane drops that client in its next round. A SIGBUS anywhere else is
/// still fatal.
///
/// The whole range, since a page in the middle would split the mapping: each takes two more of the
/// maps that a process may have (vm.max_map_count), and clients could use them up. Its pages take
/// memory only when they are written to, so as much as lanes write until the client is dropped.
///
/// Ranges are added and removed by the control thread; the handler runs in whichever thread faults
/// and takes no lock; one thread takes the hits. Nothing here allocates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace gradwire::ipc {

inline constexpr std::size_t kMaxGuardedRanges = 16384;

/// Installs the handler for the whole process; a second call does nothing. SharedMemory guards its
/// mappings itself, but without the handler that has no effect.
[[nodiscard]] Result<void> install_bus_guard();

namespace detail {
inline std::atomic<std::int32_t> first_hit{-1};  ///< a slot; the others follow it
}  // namespace detail

/// Whether take_hit() has one: a load, for each round of a lane.
[[nodiscard]] inline bool has_hits() noexcept {
  return detail::first_hit.load(std::memory_order_relaxed) >= 0;
}
/// The owner of a range that was replaced; each range comes once. One thread at a time.
/// @return whether there was one.
[[nodiscard]] bool take_hit(std::uint32_t& owner) noexcept;

/// One guarded mapping, in whole pages of `page_bytes`. Empty if the table was full.
class GuardedRange {
 public:
  GuardedRange() = default;
  /// @param owner  what take_hit() says of it.
  GuardedRange(const void* base, std::uint64_t bytes, std::uint64_t page_bytes,
               std::uint32_t owner = 0) noexcept;
  GuardedRange(GuardedRange&& other) noexcept;
  GuardedRange& operator=(GuardedRange&& other) noexcept;
  ~GuardedRange();

  [[nodiscard]] explicit operator bool() const noexcept { return slot_ >= 0; }
  /// @return whether it was replaced.
  [[nodiscard]] bool was_hit() const noexcept;

 private:
  int slot_ = -1;
};

}  // namespace gradwire::ipc
