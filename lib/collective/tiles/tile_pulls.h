// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What is pulled from whom: parts and results of ops by tiles that may be asked for wait in two
/// lines, which take turns, until the lane's window has room for them. Who is served, and has more
/// to give, waits behind the others. One lane owns it; it allocates at construction only; time is a
/// parameter.
///
/// No rank keeps a turn while nothing of it is ready, so two ranks can never wait for each other's
/// turns: a rank is in a line only if TileIn::open() says that it has something.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/fixed_queue.h"
#include "collective/links/peer_links.h"
#include "collective/links/pull_window.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "collective/tiles/tile_ops.h"

namespace gradwire::collective {

class TilePulls {
 public:
  /// All of them outlive it.
  /// @param from_each  the most chunks on their way from one rank, each way.
  TilePulls(const ShardConfig& config, TileOps& ops, PeerLinks& links, PullWindow& window,
            ShardCounters& counters, std::uint32_t from_each)
      : config_(config),
        ops_(ops),
        links_(links),
        window_(window),
        counters_(counters),
        from_each_(from_each),
        parts_most_(parts_most(config)),
        lines_{FixedQueue<std::uint32_t>(std::size_t{TileOps::kOpsMax} * config.all_ranks()),
               FixedQueue<std::uint32_t>(std::size_t{TileOps::kOpsMax} * config.all_ranks())} {}

  /// Something of that rank may be pulled now, if there is enough of it.
  void line_up(const TileOp& op, std::uint16_t rank, TileWay way) noexcept;
  /// Pulls as much as there is room for. @param pulled  called with an op, a rank and a way of
  /// which more was pulled.
  template <class Pulled>
  void pull_more(TimeNs now, Pulled&& pulled) noexcept {
    while (pull_next(now)) pulled(*last_.op, last_.rank, last_.way);
  }
  /// A chunk came that was not here. @return whether some before it count as lost.
  [[nodiscard]] bool came(const TileOp& op, std::uint16_t rank, TileWay way, std::uint32_t chunk,
                          bool ecn_ce, TimeNs now) noexcept;
  /// What was pulled there is pulled again: all of it, or the oldest chunk.
  void pull_again(TileIn& in, bool all, TimeNs now) noexcept;
  /// Nothing that was pulled from there comes: the rank has not entered.
  void give_back(TileIn& in) noexcept;
  /// The group ended here.
  void drop_all() noexcept {
    parts_on_way_ = 0;
    for (auto& line : lines_) line.clear();
  }

 private:
  /// Of an all-reduce whose owners have shares by their ports' rates a rank pulls as much of parts,
  /// beside results, as falls to it. If all owners pulled alike, those with small shares would be
  /// through first, and the ports of the others alone would not fill all sources'.
  [[nodiscard]] static std::uint32_t parts_most(const ShardConfig& config) noexcept;
  /// How many parts of the op may be pulled now, beside the window.
  [[nodiscard]] std::uint32_t part_room(const TileOp& op) const noexcept {
    if (!op.travels) return UINT32_MAX;
    return parts_most_ - std::min(parts_most_, parts_on_way_);
  }

  struct Last {
    const TileOp* op = nullptr;
    std::uint16_t rank = 0;
    TileWay way = TileWay::kParts;
  };

  [[nodiscard]] FixedQueue<std::uint32_t>& line_of(TileWay way) noexcept {
    return lines_[static_cast<std::size_t>(way)];
  }
  [[nodiscard]] static constexpr Puller puller_of(TileWay way) noexcept {
    return way == TileWay::kParts ? Puller::kParts : Puller::kResults;
  }
  /// Whether a pull for so many chunks is worth its packet now.
  [[nodiscard]] bool is_worth(const TileIn& in, std::uint32_t open) const noexcept;
  enum class Outcome : std::uint8_t { kPulled, kNothing, kWaits };
  [[nodiscard]] bool pull_next(TimeNs now) noexcept;
  [[nodiscard]] Outcome pull_from(TileWay way, TimeNs now) noexcept;
  void grant(const TileOp& op, std::uint16_t rank, TileWay way, std::uint32_t chunks,
             TimeNs now) noexcept;
  /// Numbers that the last tile of a segment lacks count as chunks that have come.
  void skip_lacking(const TileOp& op, std::uint16_t rank, TileWay way) noexcept;
  void begin_repairs(TileIn& in, TimeNs now) noexcept;
  void pull_lost(TileIn& in, const ChunkSet& lost, TimeNs now) noexcept;

  const ShardConfig& config_;
  TileOps& ops_;
  PeerLinks& links_;
  PullWindow& window_;
  ShardCounters& counters_;
  const std::uint32_t from_each_;
  const std::uint32_t parts_most_;  ///< on their way, of ops whose results travel
  std::uint32_t parts_on_way_ = 0;  ///< of all ops
  /// Of each way those that wait: place of an op x 65,536 + a rank.
  std::array<FixedQueue<std::uint32_t>, 2> lines_;
  bool results_next_ = false;
  Last last_;
};

}  // namespace gradwire::collective
