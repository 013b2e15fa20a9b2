// SPDX-License-Identifier: BSD-3-Clause
// Lanes of a host that stand still while the others go on: each is a thread of its own. What comes
// for such a lane lies in its receive ring, and what its host tells it waits.
#include <algorithm>
#include <utility>

#include "sim/seeds/sizes.h"
#include "sim/units.h"
#include "sim/world/world.h"

namespace gradwire::sim {
namespace {

/// Frames that a lane's receive ring holds; what comes beyond is lost.
constexpr std::size_t kRing = 48;

}  // namespace

bool World::stands_still(const collective::Shard* lane) const {
  const auto found = lags_.find(lane);
  return found != lags_.end() && now_ < found->second.until;
}

void World::let_lanes_lag(Host& host) {
  // What a lane does when it goes on may take places away.
  const std::vector<Place> places(host.places.begin(), host.places.end());
  for (const Place& place : places) {
    if (groups_[place.group].options.lanes < 2) continue;
    Lag& lag = lags_[place.shard];
    if (now_ < lag.until) continue;
    if (now_ >= lag.next) {
      if (random_.chance(host.profile.lane_lag)) {
        lag.until = now_ + random_.pick<TimeNs>({20 * kUs, 500 * kUs, 3 * kMs, 10 * kMs, 20 * kMs});
        lag.next = lag.until + random_.between(50 * kUs, 20 * kMs);
        trace_.mix(now_, 35, host_id(host), place.lane, lag.until);
        trace_.line(now_, "host {:<3} lane {} stands still for {} us", host_id(host), place.lane,
                    (lag.until - now_) / kUs);
        continue;
      }
      lag.next = now_ + random_.between(50 * kUs, 10 * kMs);
    }
    const TimeNs local_now = local(host, now_);
    for (auto& told : std::exchange(lag.later, {})) told(*place.shard, local_now);
    const auto received = std::exchange(lag.received, {});
    for (const Received& frame : received) dispatch(host, frame, local_now);
    end_runs(local_now);
    if (!received.empty()) place.shard->flush(local_now);
  }
}

void World::tell(Rank& rank, const std::function<void(collective::Shard&, TimeNs)>& what) {
  for (auto& shard : rank.shards) {
    if (stands_still(shard.get())) {
      lags_[shard.get()].later.push_back(what);
    } else {
      what(*shard, local(hosts_[rank.host], now_));
    }
  }
}

void World::keep(const collective::Shard* lane, const Received& received) {
  auto& ring = lags_[lane].received;
  if (ring.size() == kRing) {
    rte_pktmbuf_free(received.mbuf);
    return;
  }
  ring.push_back(received);
}

void World::forget_lags(const Rank& rank) {
  for (const auto& shard : rank.shards) {
    const auto found = lags_.find(shard.get());
    if (found == lags_.end()) continue;
    for (const Received& received : found->second.received) rte_pktmbuf_free(received.mbuf);
    lags_.erase(found);
  }
}

void lag_lanes(Scenario& s) {
  Random random(s.seed * 0x9e3779b97f4a7c15u + 13);
  if (s.group.lanes < 2) s.group.lanes = static_cast<std::uint8_t>(2 + random.below(3));
  const double lag = random.pick({0.2, 0.6});
  const std::uint64_t only = random.chance(0.3) ? random.below(s.nranks) : s.nranks;
  for (std::uint16_t rank = 0; rank < s.nranks; ++rank) {
    if (only == s.nranks || rank == only) s.hosts[rank].lane_lag = lag;
  }
  fit_pools(s);
}

}  // namespace gradwire::sim
