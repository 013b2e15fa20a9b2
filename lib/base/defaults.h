// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What several places need of the configuration without its sections (base/sections.h, which has
/// the defaults of all keys): defaults by themselves, what "auto" stands for, and times of keys as
/// libraries count them. Any thread; nothing here allocates.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace gradwire::defaults {

inline constexpr const char* kControlSocket = "/run/gradwire/gradwired.sock";
inline constexpr std::uint16_t kBaseUdpPort = 18515;

/// `silence_ms` if it is "auto". A busy lane on a core that others use too is heard when the
/// scheduler gives it its turn: what is short there may be no more than a neighbor's turn. Every
/// survivor's client is to know within 200 ms or 2 s of a death, so the silence itself may take
/// three quarters of it.
inline constexpr std::uint64_t kSilenceMs = 1'500;
/// The same if polling is busy and require_isolated is true.
inline constexpr std::uint64_t kSilenceOwnCoresMs = 150;

/// `user_clients` and `user_groups` if they are "auto": three quarters of all, rounded up, so that
/// a daemon for one client or group serves somebody.
[[nodiscard]] constexpr std::uint64_t user_share(std::uint64_t all) noexcept {
  return (3 * all + 3) / 4;
}

/// Milliseconds and microseconds of a key as the libraries count time.
[[nodiscard]] constexpr TimeNs ms(std::uint64_t value) noexcept {
  return static_cast<TimeNs>(value) * 1'000'000;
}
[[nodiscard]] constexpr TimeNs us(std::uint64_t value) noexcept {
  return static_cast<TimeNs>(value) * 1'000;
}

}  // namespace gradwire::defaults
