// SPDX-License-Identifier: BSD-3-Clause
#include "collective/tiles/tile_cut.h"

#include "base/require.h"
#include "collective/shapes/shape_ring.h"

namespace gradwire::collective {

TileCut::TileCut(const TileGroup& group, const TileCall& call) noexcept
    : group_(group), call_(call), refusal_(judge(group, call)) {
  if (refusal_ != TileRefusal::kNone) return;
  const std::uint16_t nranks = group.processes.nranks;
  chunk_elements_ = static_cast<std::uint32_t>(
      elements_in_chunk(call.format, call.datatype, group.payload_bytes));
  chunks_of_tile_ = collective::chunks_of_tile(group.payload_bytes, nranks, group.tile_bytes);
  if (is_all_reduce()) {
    ring_ = Partition(call.count, call.datatype, nranks, group.payload_bytes);
    const bool in_blocks = call.format == WireFormat::kInt8;
    unit_elements_ = in_blocks ? kFormatBlock : 64 / element_bytes(call.datatype);
    units_ = (call.count + unit_elements_ - 1) / unit_elements_;
    // The ring's segments are whole lines of 64 bytes.
    segment_units_ =
        in_blocks ? (units_ + nranks - 1) / nranks : ring_.segment_elements() / unit_elements_;
  }
  if (!all_fit_numbers()) refusal_ = TileRefusal::kTooManyChunks;
}

TileRefusal TileCut::judge(const TileGroup& group, const TileCall& call) noexcept {
  switch (call.collective) {
    case Collective::kAllReduce:
      require(group.shares == nullptr || group.shares->ranks() == group.all_ranks,
              "each rank of the group has its share of all-reduces");
      if (group.shares == nullptr && group.all_ranks != group.processes.nranks) {
        return TileRefusal::kOwners;
      }
      break;
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      break;
    default:
      return TileRefusal::kCollective;
  }
  if (!fits(call.format, call.datatype)) return TileRefusal::kFormat;
  return elements_in_chunk(call.format, call.datatype, group.payload_bytes) == 0
             ? TileRefusal::kPayload
             : TileRefusal::kNone;
}

bool TileCut::all_fit_numbers() const noexcept {
  if (has_blocks()) {
    // Ranks differ in how many blocks they have, kMaxMembers at most.
    Share most{.elements = call_.count, .segments = kMaxMembers};
    if (fits_numbers(most)) return true;
    for (std::uint16_t rank = 0; rank < group_.processes.nranks; ++rank) {
      if (!fits_numbers(share_of(rank))) return false;
    }
    return true;
  }
  if (!is_all_reduce()) return fits_numbers({.elements = call_.count, .segments = 1});
  if (group_.shares == nullptr) return fits_numbers(share_of(0));
  // None has a unit more than its share.
  const std::uint64_t units = group_.shares->most_of(units_) + 1;
  if (fits_numbers({.elements = units * unit_elements_, .segments = 1})) return true;
  for (std::uint16_t rank = 0; rank < group_.all_ranks; ++rank) {
    if (!fits_numbers(share_of(rank))) return false;
  }
  return true;
}

TileCut::Share TileCut::share_of(std::uint16_t owner) const noexcept {
  const GroupProcesses& processes = group_.processes;
  if (has_blocks()) {
    if (owner >= processes.nranks) return {};
    return {.elements = call_.count, .segments = processes.members_of(owner), .place = owner};
  }
  if (!is_all_reduce()) {
    if (owner != processes.rank_of(call_.root)) return {};
    return {.elements = call_.count, .segments = 1};
  }
  const std::uint64_t first = begin_of(owner);
  return {.first = first, .elements = begin_of(owner + 1u) - first, .segments = 1, .place = owner};
}

std::uint64_t TileCut::begin_of(std::uint32_t rank) const noexcept {
  const std::uint64_t unit =
      group_.shares == nullptr ? rank * segment_units_ : group_.shares->begin_of(rank, units_);
  return std::min(unit * unit_elements_, call_.count);
}

TileCut::Tile TileCut::tile(std::uint16_t owner, std::uint16_t lane,
                            std::uint32_t index) const noexcept {
  const Share share = share_of(owner);
  std::uint64_t in_segment = first_on_lane(share.place, lane) + std::uint64_t{index} * group_.lanes;
  std::uint64_t segment = 0;
  if (share.segments != 1) {
    const std::uint64_t each = std::max<std::uint64_t>(tiles_of_segment(share), 1);
    segment = in_segment / each;
    in_segment -= segment * each;
  }
  Tile tile;
  tile.owner = owner;
  const std::uint64_t at = in_segment * tile_elements();
  require(at < share.elements && (segment == 0 || segment < share.segments),
          "a tile is one that its owner has on that lane");
  tile.first = share.first + at;
  tile.count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(tile_elements(), share.elements - at));
  const bool whole = tile.count == tile_elements();
  tile.chunks = whole ? chunks_of_tile_ : (tile.count + chunk_elements_ - 1) / chunk_elements_;
  if (has_blocks()) {
    tile.process_block = static_cast<std::uint16_t>(
        group_.processes.process_of(owner, static_cast<std::uint32_t>(segment)));
  }
  return tile;
}

std::uint32_t TileCut::runs(const Tile& tile) const noexcept {
  if (call_.collective == Collective::kAllGather) return 0;
  if (!is_all_reduce()) return 1;
  const std::uint64_t segment = ring_.segment_elements();
  return static_cast<std::uint32_t>((tile.first + tile.count - 1) / segment - tile.first / segment +
                                    1);
}

TileCut::Run TileCut::run(const Tile& tile, std::uint32_t index) const noexcept {
  require(index < runs(tile), "a run is one that its tile has");
  if (!is_all_reduce()) {
    return {0, tile.count, downstream_rank(tile.owner, group_.processes.nranks)};
  }
  const std::uint64_t elements = ring_.segment_elements();
  const std::uint64_t segment = tile.first / elements + index;
  const std::uint64_t begin = std::max(segment * elements, tile.first);
  const std::uint64_t end = std::min((segment + 1) * elements, tile.first + tile.count);
  // In an all-reduce the fold of the ring's segment begins at the rank of that number.
  return {static_cast<std::uint32_t>(begin - tile.first), static_cast<std::uint32_t>(end - begin),
          static_cast<std::uint16_t>(segment)};
}

}  // namespace gradwire::collective
