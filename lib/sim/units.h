// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "base/types.h"

namespace gradwire::sim {

inline constexpr TimeNs kUs = 1'000;
inline constexpr TimeNs kMs = 1'000'000;

/// Bytes of float32, which worlds add if the datatype does not matter.
inline constexpr std::size_t kElement = 4;

}  // namespace gradwire::sim
