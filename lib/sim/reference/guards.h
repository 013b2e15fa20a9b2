// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What lies around clients' memory, and in it once its op has ended: whoever writes there is seen.
/// Constants.
#pragma once

#include <cstddef>

namespace gradwire::sim {

inline constexpr std::size_t kGuard = 64;  ///< bytes before and after
inline constexpr std::byte kGuardByte{0xa5};
inline constexpr std::byte kRetiredByte{0x5c};

}  // namespace gradwire::sim
