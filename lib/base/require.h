// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Assertions that stay in release. What a comment would call impossible is required here: if it
/// happens all the same, the process ends at once and says what was violated, before it computes
/// with a state that nobody has thought of. A test and a jump each. Any thread.
#pragma once

namespace gradwire {

/// Says `what` and the place, and aborts.
[[noreturn, gnu::cold]] void violated(const char* what, const char* file, unsigned line,
                                      const char* function) noexcept;

/// Who says a process's last words, a line, in the place of standard error: where that is a pipe
/// that nobody reads, the process would stand still and not end.
using LastWords = void (*)(const char* text);
void set_last_words(LastWords say) noexcept;

/// @param what  what must hold, as a sentence for people. The others are the caller's place:
///              clang 14 has no std::source_location.
inline void require(bool holds, const char* what, const char* file = __builtin_FILE(),
                    unsigned line = __builtin_LINE(),
                    const char* function = __builtin_FUNCTION()) noexcept {
  if (!holds) [[unlikely]] {
    violated(what, file, line, function);
  }
}

/// Whether require_dear() looks: builds of the option `checks`, which those with sanitizers have,
/// and the simulator that finds planted bugs.
#ifdef GRADWIRE_CHECKS
constexpr bool kDearChecks = true;
#else
constexpr bool kDearChecks = false;
#endif

/// For what costs more than a test and a jump.
/// @param holds  () -> bool.
template <class Holds>
inline void require_dear(Holds&& holds, const char* what, const char* file = __builtin_FILE(),
                         unsigned line = __builtin_LINE(),
                         const char* function = __builtin_FUNCTION()) noexcept {
  if constexpr (kDearChecks) require(holds(), what, file, line, function);
}

}  // namespace gradwire
