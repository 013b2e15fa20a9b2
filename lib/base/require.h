// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Assertions that stay in release. What a comment would call impossible is required here: if it
/// happens all the same, the process ends at once and says what was violated, before it computes
/// with a state that nobody has thought of. A test and a jump each. Any thread.
#pragma once

#include <source_location>

namespace gradwire {

/// Writes `what` and the place to standard error and aborts.
[[noreturn, gnu::cold]] void violated(const char* what, const std::source_location& where) noexcept;

/// @param what  what must hold, as a sentence for people.
inline void require(bool holds, const char* what,
                    const std::source_location& where = std::source_location::current()) noexcept {
  if (!holds) [[unlikely]] {
    violated(what, where);
  }
}

}  // namespace gradwire
