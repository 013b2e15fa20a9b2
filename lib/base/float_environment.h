// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Sets the floating-point control that lib/reduce expects (round to nearest, denormals kept)
/// during a call from a program that may use other settings. Exception flags that arithmetic raises
/// meanwhile may stay raised. Any thread, of which it changes the control; nothing here allocates.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace gradwire {

class FloatEnvironment {
 public:
#if defined(__x86_64__)
  FloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    if (differs()) _mm_setcsr(kDefault);
  }
  ~FloatEnvironment() {
    if (differs()) _mm_setcsr(saved_);
  }
#else
  FloatEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
#endif
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1f80;  ///< exceptions masked, nearest, no FTZ, no DAZ
  static constexpr unsigned kFlags = 0x3f;      ///< what was raised so far: no control
  [[nodiscard]] bool differs() const noexcept { return ((saved_ ^ kDefault) & ~kFlags) != 0; }
  unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace gradwire
