// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/result.h"

namespace gradwire {

/// What failed, and errno's text.
inline tl::unexpected<Error> system_error(const std::string& what) {
  return fail(ErrorCode::kSystem, fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace gradwire
