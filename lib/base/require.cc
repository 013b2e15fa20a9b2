// SPDX-License-Identifier: BSD-3-Clause
#include "base/require.h"

#include <cstdio>
#include <cstdlib>

namespace gradwire {

void violated(const char* what, const std::source_location& where) noexcept {
  std::fprintf(stderr, "gradwire: this must hold and does not: %s (%s:%u, %s)\n", what,
               where.file_name(), static_cast<unsigned>(where.line()), where.function_name());
  std::abort();
}

}  // namespace gradwire
