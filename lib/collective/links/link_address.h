// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a link is made from: who is at its other end, and how packets go there. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/links/seals.h"
#include "collective/shapes/place.h"
#include "collective/shard_config.h"
#include "wire/frame.h"

namespace gradwire::collective {

/// What goes by a link beside what a group needs to form and to end.
enum class LinkRole : std::uint8_t {
  kRing,      ///< the ring's chunks
  kAttached,  ///< nothing: the other rank has no members, and hangs on this one
  kHost,      ///< nothing: this rank has none, and hangs on the other
  kQuiet,     ///< nothing, and no pings: the group is for transfers alone
};

/// What the group's table says of a link.
struct LinkAddress {
  LinkIndex index = 0;
  std::uint16_t own_rank = 0;
  std::uint16_t rank = 0;
  std::uint8_t lane = 0;
  std::uint32_t group_tag = 0;
  bool gets_data = false;  ///< hellos go there until they are answered; data, but of a quiet link,
                           ///< goes there then, and acknowledgements come from there
  bool brings_data = false;  ///< the other way round
  LinkRole role = LinkRole::kRing;
  std::uint8_t box = 0;           ///< of the outbox: what goes there
  std::uint8_t ack_box = 0;       ///< and acknowledgements, which data's pacing must not hold back
  std::uint16_t port = 0;         ///< the lane's port that leads there
  std::uint64_t incarnation = 0;  ///< of its daemon
  LinkTokens tokens;
  Seals* seals = nullptr;        ///< of the group's packets, if they are sealed
  wire::IpAddress ip;            ///< where packets from there come from
  wire::FrameTemplate frame;     ///< before packets that go there
  std::vector<LinkPath> others;  ///< further paths; the one above is the first
  SourcePorts sources;           ///< on each path
};

}  // namespace gradwire::collective
