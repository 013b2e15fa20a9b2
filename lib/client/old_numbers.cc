// SPDX-License-Identifier: BSD-3-Clause
// libgradwire and the plug-in for NCCL are loaded in images whose glibc may be older than the one
// that they are built with. Since 2.38, <stdlib.h> turns strtoll() and strtoull() into functions
// that only it has, because they know "0b" besides; nlohmann-json calls them. Here they are for
// these libraries alone, made of the functions that every glibc has. Any thread; nothing allocates.
#include <features.h>

#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 38)

extern "C" {

// <stdlib.h> would give these names a meaning of its own.
long long old_strtoll(const char* text, char** end, int base) noexcept __asm__("strtoll");
unsigned long long old_strtoull(const char* text, char** end, int base) noexcept
    __asm__("strtoull");

__attribute__((visibility("hidden"))) long long __isoc23_strtoll(const char* text, char** end,
                                                                 int base) noexcept {
  return old_strtoll(text, end, base);
}
__attribute__((visibility("hidden"))) unsigned long long __isoc23_strtoull(const char* text,
                                                                           char** end,
                                                                           int base) noexcept {
  return old_strtoull(text, end, base);
}

}  // extern "C"

#endif
#endif
