// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How many packets a connection may have in flight if nobody says. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gradwire {

/// As many packets as hold 512 KiB, which covers 100 Gbit/s for 40 us and stays in the cache of a
/// core; with small payloads no more than 128, which find room in a receive ring of 256 while its
/// lane is away, with large ones no fewer than 64, of which acknowledgements take 16 at a time.
/// @param payload_bytes  of a full chunk; 0 = not known yet, taken for the largest.
[[nodiscard]] constexpr std::uint32_t window_packets_for(std::uint32_t payload_bytes) noexcept {
  constexpr std::uint32_t kBytes = 512u << 10;
  return payload_bytes == 0 ? 64u : std::clamp(kBytes / payload_bytes, 64u, 128u);
}

}  // namespace gradwire
