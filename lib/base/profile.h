// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Where a lane's cycles go, by stage: built in with -Dprofile=true, nothing otherwise. A Stage
/// object opens a stage for its scope; time is charged to the innermost open one, so the stages sum
/// up to all that has passed. A switch costs some 25 cycles, which are charged too.
///
/// It reads the time stamp counter, and nothing but the account ever sees it: what a shard does
/// stays a function of its inputs. One account a thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(GRADWIRE_PROFILE) && defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gradwire::profile {

enum class StageId : std::uint8_t {
  kOther,      ///< the program, and rounds in which nothing came
  kRx,         ///< rte_eth_rx_burst
  kDecode,     ///< frame and packet headers
  kIntegrity,  ///< CRC32C of payloads, checked and made
  kReduce,     ///< the backend: folds, loads, stores
  kRing,       ///< schedule, bitmaps, frames
  kTransport,  ///< acknowledgements, loss detection, packet numbers
  kTx,         ///< rte_eth_tx_burst
};
inline constexpr std::size_t kStages = 8;
inline constexpr std::array<const char*, kStages> kStageNames = {
    "other", "rx", "decode", "integrity", "reduce", "ring", "transport", "tx"};

struct Account {
  std::array<std::uint64_t, kStages> cycles{};
  std::array<std::uint64_t, kStages> entries{};
  StageId stage = StageId::kOther;
  std::uint64_t since = 0;  ///< 0 = not started
};

#if defined(GRADWIRE_PROFILE) && defined(__x86_64__)

inline constexpr bool kEnabled = true;

inline Account& account() noexcept {
  static thread_local Account mine;
  return mine;
}

inline StageId enter(StageId stage) noexcept {
  Account& mine = account();
  const std::uint64_t now = __rdtsc();
  if (mine.since != 0) mine.cycles[static_cast<std::size_t>(mine.stage)] += now - mine.since;
  mine.since = now;
  const StageId before = mine.stage;
  mine.stage = stage;
  return before;
}

class Stage {
 public:
  explicit Stage(StageId stage) noexcept : before_(enter(stage)) {
    ++account().entries[static_cast<std::size_t>(stage)];
  }
  ~Stage() { enter(before_); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  StageId before_;
};

#else

inline constexpr bool kEnabled = false;

inline Account& account() noexcept {
  static Account none;
  return none;
}

class Stage {
 public:
  explicit Stage(StageId) noexcept {}
  ~Stage() {}  // not trivial, so that a scope's object is used
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
};

#endif

}  // namespace gradwire::profile
