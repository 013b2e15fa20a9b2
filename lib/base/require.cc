// SPDX-License-Identifier: BSD-3-Clause
#include "base/require.h"

#include <cstdio>
#include <cstdlib>

namespace gradwire {

void violated(const char* what, const char* file, unsigned line, const char* function) noexcept {
  std::fprintf(stderr, "gradwire: this must hold and does not: %s (%s:%u, %s)\n", what, file, line,
               function);
  std::abort();
}

}  // namespace gradwire
