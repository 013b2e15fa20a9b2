// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shard_status.h"

#include <cstring>

namespace gradwire::collective {

const char* name_of(ShardState state) noexcept {
  switch (state) {
    case ShardState::kIdle:
      return "idle";
    case ShardState::kForming:
      return "forming";
    case ShardState::kFormed:
      return "formed";
    case ShardState::kLeaving:
      return "leaving";
    case ShardState::kAborted:
      return "aborted";
    case ShardState::kClosed:
      return "closed";
  }
  return "state?";
}

ShardCounters& ShardCounters::operator+=(const ShardCounters& other) noexcept {
  // It has nothing but 64-bit counters.
  static_assert(sizeof(ShardCounters) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t kCount = sizeof(ShardCounters) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kCount> sum;
  std::array<std::uint64_t, kCount> more;
  std::memcpy(sum.data(), this, sizeof sum);
  std::memcpy(more.data(), &other, sizeof more);
  for (std::size_t i = 0; i < kCount; ++i) sum[i] += more[i];
  std::memcpy(static_cast<void*>(this), sum.data(), sizeof sum);
  return *this;
}

}  // namespace gradwire::collective
