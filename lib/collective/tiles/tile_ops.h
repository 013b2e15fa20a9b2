// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Ops by tiles that have entered on a lane, oldest first, and what this rank and each other know
/// of each other in each of them. An op has a place from when it enters until nobody needs anything
/// of it here; places are given back in the order of the ops. One lane owns it; it allocates at
/// construction only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/require.h"
#include "collective/ops/chunk.h"
#include "collective/ops/op_spec.h"
#include "collective/tiles/tile_cut.h"
#include "collective/tiles/tile_ends.h"

namespace gradwire::collective {

/// Whether chunks are parts or results.
enum class TileWay : std::uint8_t { kParts, kResults };

struct TileOp {
  /// Tiles that may have started, and not be folded.
  static constexpr std::uint32_t kStartedMax = 64;

  std::uint64_t op_seq = 0;
  OpSpec spec;  ///< its memory is not touched once the op is done
  OpCall call;
  TileCut cut;
  bool sums = false;     ///< owners fold parts
  bool travels = false;  ///< their results go to all
  bool encodes = false;  ///< these have a format
  bool keeps = false;    ///< results of this owner lie in places of their own, not in an output
  bool streams = false;  ///< results that come are stored past the cache
  bool done = false;     ///< for the client: nobody reads or writes its memory here
  // As an owner: tiles that this rank has on this lane; of these, from the first on.
  std::uint32_t tiles = 0;
  std::uint32_t started = 0;
  std::uint32_t folded = 0;
  std::uint32_t given_back = 0;  ///< if it `keeps` results: nobody lacks those below it
  std::uint32_t told = 0;        ///< what pullers are to be told
  TimeNs rose_at = 0;            ///< if it is less than `folded`: since when
  /// Ranks that have not been looked at since a tile started or `told` rose; the next of them.
  std::uint16_t spread_left = 0;
  std::uint16_t spread_at = 0;
  std::uint16_t pullers_left = 0;  ///< that have not said that they have all
  std::uint16_t owners_left = 0;   ///< of which something is still to come
  /// By tile, modulo their number: chunks of it that have not come, and where its parts lie.
  std::array<std::uint32_t, kStartedMax> missing{};
  std::array<std::uint16_t, kStartedMax> place{};
};

class TileOps {
 public:
  static constexpr std::uint32_t kOpsMax = 8;

  /// @param ranks  of the group, those without members too.
  explicit TileOps(std::uint16_t ranks)
      : ranks_(ranks),
        parts_in_(std::size_t{kOpsMax} * ranks),
        results_in_(parts_in_.size()),
        parts_out_(parts_in_.size()),
        results_out_(parts_in_.size()) {}

  [[nodiscard]] bool full() const noexcept { return size() == kOpsMax; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(end_ - first_);
  }
  /// The i-th oldest, i below size().
  [[nodiscard]] TileOp& at(std::uint32_t i) noexcept { return ops_[(first_ + i) % kOpsMax]; }
  [[nodiscard]] const TileOp& at(std::uint32_t i) const noexcept {
    return ops_[(first_ + i) % kOpsMax];
  }
  /// nullptr if it has not entered, or is over.
  [[nodiscard]] TileOp* find(std::uint64_t op_seq) noexcept {
    for (std::uint32_t i = 0; i < size(); ++i) {
      if (at(i).op_seq == op_seq) return &at(i);
    }
    return nullptr;
  }
  [[nodiscard]] const TileOp* find(std::uint64_t op_seq) const noexcept {
    return const_cast<TileOps*>(this)->find(op_seq);
  }
  /// The newest, which has nothing of the op that had its place. There is room.
  [[nodiscard]] TileOp& open() noexcept {
    require(!full(), "an op by tiles enters if there is a place for it");
    TileOp& op = ops_[end_++ % kOpsMax];
    op = TileOp{};
    return op;
  }
  void close_oldest() noexcept {
    require(size() > 0, "an op that is over had entered");
    ++first_;
  }
  void clear() noexcept { first_ = end_ = 0; }

  /// Which place an op has, below kOpsMax; and the op that has it.
  [[nodiscard]] std::uint32_t place_of(const TileOp& op) const noexcept {
    return static_cast<std::uint32_t>(&op - ops_.data());
  }
  [[nodiscard]] TileOp& in_place(std::uint32_t place) noexcept { return ops_[place]; }

  // As an owner: parts of a source, results for a puller. As a source and a puller: parts for an
  // owner, results of it.
  [[nodiscard]] TileIn& parts_in(const TileOp& op, std::uint16_t source) noexcept {
    return parts_in_[index(op, source)];
  }
  [[nodiscard]] TileOut& results_out(const TileOp& op, std::uint16_t puller) noexcept {
    return results_out_[index(op, puller)];
  }
  [[nodiscard]] TileOut& parts_out(const TileOp& op, std::uint16_t owner) noexcept {
    return parts_out_[index(op, owner)];
  }
  [[nodiscard]] TileIn& results_in(const TileOp& op, std::uint16_t owner) noexcept {
    return results_in_[index(op, owner)];
  }
  /// What comes from a rank, and what goes there, by the way.
  [[nodiscard]] TileIn& in(const TileOp& op, std::uint16_t rank, TileWay way) noexcept {
    return way == TileWay::kParts ? parts_in(op, rank) : results_in(op, rank);
  }
  [[nodiscard]] TileOut& out(const TileOp& op, std::uint16_t rank, TileWay way) noexcept {
    return way == TileWay::kParts ? parts_out(op, rank) : results_out(op, rank);
  }
  [[nodiscard]] const TileIn& parts_in(const TileOp& op, std::uint16_t source) const noexcept {
    return parts_in_[index(op, source)];
  }
  [[nodiscard]] const TileOut& results_out(const TileOp& op, std::uint16_t puller) const noexcept {
    return results_out_[index(op, puller)];
  }
  [[nodiscard]] const TileOut& parts_out(const TileOp& op, std::uint16_t owner) const noexcept {
    return parts_out_[index(op, owner)];
  }
  [[nodiscard]] const TileIn& results_in(const TileOp& op, std::uint16_t owner) const noexcept {
    return results_in_[index(op, owner)];
  }

 private:
  [[nodiscard]] std::size_t index(const TileOp& op, std::uint16_t rank) const noexcept {
    require_dear([&] { return place_of(op) < kOpsMax && rank < ranks_; },
                 "what two ranks know of each other is of an op that has a place");
    return std::size_t{place_of(op)} * ranks_ + rank;
  }

  const std::uint16_t ranks_;
  std::array<TileOp, kOpsMax> ops_;
  std::uint64_t first_ = 0;  ///< [first_, end_) are in use, each at its number modulo kOpsMax
  std::uint64_t end_ = 0;
  std::vector<TileIn> parts_in_;  ///< [kOpsMax x ranks]
  std::vector<TileIn> results_in_;
  std::vector<TileOut> parts_out_;
  std::vector<TileOut> results_out_;
};

}  // namespace gradwire::collective
