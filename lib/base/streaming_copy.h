// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A copy of more bytes than caches hold. Pure; any thread.
#pragma once

#include <cstddef>

namespace gradwire {

/// From so many bytes on it is worth it: an ordinary copy first reads what it will overwrite, and
/// drives everything else out of the caches. Of fewer, what was copied is soon read from a cache.
/// Measured on AMD EPYC (family 25, model 17): 16 MiB 0.6 ms instead of 1.4, 4 MiB 0.15 instead of
/// 0.09.
inline constexpr std::size_t kStreamingCopyBytes = std::size_t{16} << 20;

/// As std::memcpy(), past the caches. Other threads that are told of it afterwards see it.
void streaming_copy(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace gradwire
