// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Why a packet has no effect: reasons that are counted (doc/protocol/limits.md). Plain data.
#pragma once

#include <cstdint>

namespace gradwire::wire {

/// Why a packet was dropped; each has its counter.
enum class Drop : std::uint8_t {
  kNone = 0,
  kShort,    ///< shorter than its header or than its lengths say
  kForeign,  ///< not our Ethernet, IP or UDP, or not from the neighbor
  kVersion,
  kType,
  kHeaderCrc,
  kPayloadCrc,
  kMalformed,     ///< a field out of its bounds
  kUnknownGroup,  ///< nobody here has a group of this tag: also every packet of an old epoch
  kDuplicate,
  kReplay,         ///< packet number too old to tell
  kBadChunk,       ///< chunk, hop, count or lane that this rank cannot get
  kEagerOverflow,  ///< sent ahead of the grant beyond the allowance
  kNoBuffer,
  kState,       ///< right, but not in this state of the group
  kToken,       ///< not the token of this link: from somebody who has not seen the group's table
  kOpAhead,     ///< of an op so far ahead of this rank's that its descriptor has no place
  kUnsealed,    ///< not sealed as the group's packets are
  kGeneration,  ///< of a generation of keys that this rank has no key of
  kTag,         ///< its tag does not fit: forged, changed on its way, or of another table
  kCount,
};
inline constexpr int kDropCount = static_cast<int>(Drop::kCount);
[[nodiscard]] const char* name_of(Drop drop) noexcept;

}  // namespace gradwire::wire
