// SPDX-License-Identifier: BSD-3-Clause
#include "base/float_environment.h"

#include <catch2/catch.hpp>
#include <limits>

namespace {

#if defined(__x86_64__)
TEST_CASE("the caller's rounding comes back, and the default holds meanwhile") {
  const unsigned saved = _mm_getcsr();
  _MM_SET_ROUNDING_MODE(_MM_ROUND_UP);
  volatile float one = 1;
  volatile float tiny = 1e-9F;
  const float up = one + tiny;
  float nearest = 0;
  {
    const gradwire::FloatEnvironment defaults;
    nearest = one + tiny;
  }
  const unsigned after = _MM_GET_ROUNDING_MODE();
  _mm_setcsr(saved);
  CHECK(up > 1.0F);
  CHECK(nearest == 1.0F);
  CHECK(after == _MM_ROUND_UP);
}

TEST_CASE("denormals are kept even where the caller flushes them") {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // FTZ and DAZ
  volatile float tiny = std::numeric_limits<float>::denorm_min();
  const float flushed = tiny + tiny;
  float kept = 0;
  {
    const gradwire::FloatEnvironment defaults;
    kept = tiny + tiny;
  }
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  CHECK(flushed == 0);
  CHECK(kept != 0);
  CHECK((after & 0x8040) == 0x8040);
}
#endif

}  // namespace
