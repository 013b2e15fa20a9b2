// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The defaults of configuration keys that libraries need too: programs without a configuration
/// (embedded ranks, gradwire-perf, the simulator, tests) and lib/config take them from here, so
/// that each stands once. A name is the key's, in the key's unit. Defaults that nobody but the
/// daemon's configuration knows stand in config/daemon_config.h. test/unit/gradwired/
/// defaults_test.cc fails if a library gets another value than the key's. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/types.h"

namespace gradwire::defaults {

// [daemon]
inline constexpr const char* kControlSocket = "/run/gradwire/gradwired.sock";
inline constexpr std::uint32_t kSocketMode = 0660;

// [[port]]
/// Small: what is in flight should stay in the L2 cache.
inline constexpr std::uint16_t kRxDescriptors = 256;
inline constexpr std::uint16_t kTxDescriptors = 256;

// [lanes]
inline constexpr std::uint16_t kBaseUdpPort = 18515;
inline constexpr std::string_view kPolling = "adaptive";

// [transport]
inline constexpr std::string_view kCongestion = "static";
inline constexpr std::uint64_t kSwiftTargetUs = 100;
inline constexpr std::uint32_t kEagerPackets = 32;
inline constexpr std::uint64_t kExchangeKib = 512;
inline constexpr std::uint64_t kDirectKib = 64;
inline constexpr std::uint64_t kTwoStepKib = 16;
inline constexpr std::uint64_t kGatheredKib = 256;
inline constexpr std::uint64_t kGatheredRanks = 64;
inline constexpr std::uint64_t kSourcePorts = 1;
/// "payload": each payload has a CRC; "link": none.
inline constexpr std::string_view kIntegrity = "payload";

// [timeouts]
/// `silence_ms` if it is "auto". A busy lane on a core that others use too is heard when the
/// scheduler gives it its turn: what is short there may be no more than a neighbor's turn. Every
/// survivor's client is to know within 200 ms or 2 s of a death, so the silence itself may take
/// three quarters of it.
inline constexpr std::uint64_t kSilenceMs = 1'500;
/// The same if polling is busy and require_isolated is true.
inline constexpr std::uint64_t kSilenceOwnCoresMs = 150;
inline constexpr std::uint64_t kFormationMs = 30'000;
inline constexpr std::uint64_t kOpenMs = 5'000;
inline constexpr std::uint64_t kHelloMs = 20;
inline constexpr std::uint64_t kPingMs = 50;
inline constexpr std::uint64_t kLeaveMs = 2'000;
inline constexpr std::uint64_t kLeaveGraceMs = 60'000;
inline constexpr std::uint64_t kDrainMs = 5'000;
inline constexpr std::uint64_t kCloseMs = 5'000;

// [limits]
inline constexpr std::uint32_t kClients = 128;
inline constexpr std::uint32_t kGroups = 48;
inline constexpr std::uint32_t kClientGroups = 48;
inline constexpr std::uint32_t kClientRegions = 64;
inline constexpr std::uint64_t kClientMemoryMib = 65'536;
inline constexpr std::uint32_t kActiveOps = 64;
inline constexpr std::uint32_t kLaneChunks = std::uint32_t{1} << 20;

// [gpu]
inline constexpr std::uint32_t kPersistentSms = 4;

// [faults]
inline constexpr std::uint64_t kFaultSeed = 1;
inline constexpr std::uint32_t kReorderFrames = 8;
inline constexpr std::uint32_t kDelayUs = 1'000;

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
