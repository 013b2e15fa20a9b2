// SPDX-License-Identifier: BSD-3-Clause
#include "collective/tiles/tile_pulls.h"

#include <algorithm>

#include "base/planted_bug.h"
#include "base/require.h"

namespace gradwire::collective {

std::uint32_t TilePulls::parts_most(const ShardConfig& config) noexcept {
  if (config.tiles.shares == nullptr || config.folds_only()) return UINT32_MAX;
  constexpr std::uint64_t kSteps = 1u << 16;
  constexpr std::uint64_t kLeast = 2;
  const TileShares& shares = *config.tiles.shares;
  // Shares are below 2^43: 1,024 of 2^32.
  const std::uint64_t own = shares.share_of(config.rank) * kSteps / shares.all();
  const std::uint64_t parts = own * (config.nranks - 1u);
  const std::uint64_t results = kSteps - own;
  const std::uint64_t most =
      config.window_packets * parts / std::max<std::uint64_t>(parts + results, 1);
  return static_cast<std::uint32_t>(std::max(most, kLeast));
}

bool TilePulls::is_worth(const TileIn& in, std::uint32_t open) const noexcept {
  if (open == 0) return false;
  const std::uint32_t least = std::min({kPullChunks, from_each_, in.ready - in.next});
  return in.on_way == 0 || open >= least;
}

void TilePulls::line_up(const TileOp& op, std::uint16_t rank, TileWay way) noexcept {
  TileIn& in = ops_.in(op, rank, way);
  if (in.in_line || !is_worth(in, in.open(from_each_))) return;
  in.in_line = true;
  require(line_of(way).push(ops_.place_of(op) << 16 | rank),
          "a rank waits once for each op and way");
}

bool TilePulls::pull_next(TimeNs now) noexcept {
  const TileWay first = results_next_ ? TileWay::kResults : TileWay::kParts;
  const TileWay second = results_next_ ? TileWay::kParts : TileWay::kResults;
  const Outcome outcome = pull_from(first, now);
  if (outcome == Outcome::kPulled) return true;
  // It waits for room, and small pulls of the other way would take it.
  if (outcome == Outcome::kWaits && window_.has(puller_of(second))) return false;
  return pull_from(second, now) == Outcome::kPulled;
}

TilePulls::Outcome TilePulls::pull_from(TileWay way, TimeNs now) noexcept {
  FixedQueue<std::uint32_t>& line = line_of(way);
  while (!line.empty()) {
    const std::uint64_t room = window_.room(puller_of(way));
    if (room == 0) return Outcome::kWaits;
    const std::uint32_t item = line.front();
    const TileOp& op = ops_.in_place(item >> 16);
    const std::uint32_t part_room_now = way == TileWay::kParts ? part_room(op) : UINT32_MAX;
    // It stays the first: parts that come make room.
    if (part_room_now == 0) return Outcome::kNothing;
    const auto rank = static_cast<std::uint16_t>(item & 0xffff);
    TileIn& in = ops_.in(op, rank, way);
    const std::uint32_t open = in.open(from_each_);
    const std::uint64_t worth = std::min<std::uint64_t>(open, window_.worth_of_room());
    if (room < worth && window_.has(puller_of(way))) return Outcome::kWaits;
    line.pop();
    in.in_line = false;
    const auto chunks =
        static_cast<std::uint32_t>(std::min<std::uint64_t>({open, room, part_room_now}));
    // If it is not, something is on its way from there, and lines it up again when it comes.
    if (!is_worth(in, chunks)) continue;
    grant(op, rank, way, chunks, now);
    line_up(op, rank, way);
    results_next_ = way == TileWay::kParts;
    last_ = {&op, rank, way};
    return Outcome::kPulled;
  }
  return Outcome::kNothing;
}

void TilePulls::grant(const TileOp& op, std::uint16_t rank, TileWay way, std::uint32_t chunks,
                      TimeNs now) noexcept {
  TileIn& in = ops_.in(op, rank, way);
  if (in.on_way == 0) in.waits_since = links_.polled();
  std::uint32_t pulled = 0;
  while (pulled < chunks && in.next < in.reach()) {
    const std::uint32_t bit = in.next - in.first;
    if (!in.have.has(bit)) {
      if (!in.timed && in.next >= in.granted) {
        in.timed = true;
        in.timed_chunk = in.next;
        in.timed_at = now;
      }
      in.asked.add(bit);
      // It was pulled before: the rank may think that it was sent.
      if (in.next < in.granted) in.again.add(bit);
      ++pulled;
    }
    ++in.next;
    skip_lacking(op, rank, way);
  }
  require(in.next <= in.reach(), "what is pulled is ready there");
  in.granted = std::max(in.granted, in.next);
  in.on_way += pulled;
  if (way == TileWay::kParts) parts_on_way_ += pulled;
  if (pulled != 0) window_.pulled(puller_of(way), now, pulled);
}

void TilePulls::skip_lacking(const TileOp& op, std::uint16_t rank, TileWay way) noexcept {
  TileIn& in = ops_.in(op, rank, way);
  if (in.next < in.whole) return;
  const std::uint16_t owner = way == TileWay::kParts ? config_.rank : rank;
  const std::uint32_t each = op.cut.chunks_of_tile();
  while (in.next < in.reach() && op.cut.chunk(owner, config_.lane, in.next).count == 0) {
    // What follows the tile's last chunk it lacks, up to its end.
    const std::uint32_t end = (in.next / each + 1) * each;
    if (in.first == in.next) {
      in.first = in.next = end;
      continue;
    }
    for (; in.next < std::min(end, in.reach()); ++in.next) {
      in.have.add(in.next - in.first);
    }
  }
}

bool TilePulls::came(const TileOp& op, std::uint16_t rank, TileWay way, std::uint32_t chunk,
                     bool ecn_ce, TimeNs now) noexcept {
  TileIn& in = ops_.in(op, rank, way);
  const std::uint32_t bit = chunk - in.first;
  if (in.asked.has(bit)) {
    const bool timed = in.timed && chunk == in.timed_chunk;
    const TimeNs delay = timed ? std::max<TimeNs>(now - in.timed_at, 1) : 0;
    if (timed) {
      links_.sample(rank, delay);
      in.timed = false;
    }
    in.asked.remove(bit);
    in.again.remove(bit);
    require(in.on_way > 0 && (way != TileWay::kParts || parts_on_way_ > 0),
            "what was asked for and comes was on its way");
    --in.on_way;
    if (way == TileWay::kParts) --parts_on_way_;
    window_.came(puller_of(way), now, ecn_ce, delay);
  }
  in.have.add(bit);
  in.waits_since = links_.polled();
  in.settle();
  skip_lacking(op, rank, way);
  if (chunk < in.first || chunk - in.first < kOvertaken || in.on_way == 0) return false;
  // Each chunk once in a round trip: others that are lost need not wait for that.
  const TimeNs round_trip = std::max(links_.rtt(rank), config_.sender.granularity_ns);
  const bool anew = now - in.pulled_again_at >= round_trip;
  ChunkSet lost = in.asked.below(chunk - in.first - kOvertaken + 1);
  lost -= in.again;
  if (!anew) lost -= in.repaired;
  if (lost.empty()) return false;
  if (anew) begin_repairs(in, now);
  pull_lost(in, lost, now);
  return true;
}

void TilePulls::pull_again(TileIn& in, bool all, TimeNs now) noexcept {
  begin_repairs(in, now);
  pull_lost(in, all ? in.asked : in.asked.below(in.asked.lowest() + 1), now);
}

void TilePulls::begin_repairs(TileIn& in, TimeNs now) noexcept {
  in.pulled_again_at = now;
  in.repaired.clear();
}

void TilePulls::pull_lost(TileIn& in, const ChunkSet& lost, TimeNs now) noexcept {
  const std::uint32_t count = lost.size();
  in.again |= lost;
  in.repaired |= lost;
  in.timed = false;  // Nobody knows which pull brings it.
  counters_.tile_pieces_pulled_again += count;
  window_.lost(now, count);
}

void TilePulls::give_back(TileIn& in) noexcept {
  if (in.on_way != 0 && !planted(PlantedBug::kLateRankKeepsWindow)) {
    // Only parts are pulled from a rank that may not have entered.
    window_.forget(Puller::kParts, in.on_way);
    require(parts_on_way_ >= in.on_way, "parts that are given up were on their way");
    parts_on_way_ -= in.on_way;
    in.on_way = 0;
    in.asked.clear();
    in.again.clear();
    in.repaired.clear();
    in.timed = false;
    in.next = in.first;
  }
}

}  // namespace gradwire::collective
