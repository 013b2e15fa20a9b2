// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Who sent a packet to a shard. Plain data.
#pragma once

#include "collective/links/link_end.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// The link of a rank that is no neighbor.
inline constexpr LinkIndex kNoLink = 0xff;

/// Who sent a packet, or why it is no neighbor's.
struct PacketSource {
  wire::Drop drop = wire::Drop::kForeign;
  LinkIndex link = 0;   ///< if `drop` is kNone; of no meaning if the packet goes to any rank
  PathIndex path = 0;   ///< by which it came, if `drop` is kNone
  bool sealed = false;  ///< if `drop` is kNone: it is to be opened before anything is believed
};

}  // namespace gradwire::collective
