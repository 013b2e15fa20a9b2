// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Maps memory that the daemon shares. Any thread; a system call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace gradwire::client {

/// @param fd  as the daemon sent it; it stays the caller's.
/// @return `bytes` that munmap() unmaps, or why the descriptor has not as many.
[[nodiscard]] Result<std::byte*> map_shared(int fd, std::uint64_t bytes);

}  // namespace gradwire::client
