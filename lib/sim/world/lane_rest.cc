// SPDX-License-Identifier: BSD-3-Clause
// Groups that rest: a lane does not call the shard of a group for transfers alone that has none
// under way, but for a packet, a post, its deadline, and once in a while.
#include "sim/world/world.h"

namespace gradwire::sim {
namespace {

/// As lane::Lane::kLongRestNs.
constexpr TimeNs kLongRestNs = 1'000'000'000;

}  // namespace

bool World::rests(const Place& place, TimeNs local_now) {
  const collective::Shard& shard = *place.shard;
  if (!shard.config().transfers.alone || place.touched || shard.expects_packets()) return false;
  return shard.deadline(local_now) > local_now && local_now < place.called_at + kLongRestNs;
}

}  // namespace gradwire::sim
