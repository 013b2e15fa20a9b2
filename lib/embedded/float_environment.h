// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Sets the floating-point control that lib/reduce expects (round to nearest, denormals kept)
/// during a call from a program that may use other settings.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace gradwire::embedded {

class FloatEnvironment {
 public:
#if defined(__x86_64__)
  FloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    constexpr unsigned kDefault = 0x1f80;  // exceptions masked, nearest, no FTZ, no DAZ
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~FloatEnvironment() { _mm_setcsr(saved_); }
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
  unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace gradwire::embedded
