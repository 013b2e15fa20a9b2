// SPDX-License-Identifier: BSD-3-Clause
#include "collective/tiles/tile_owner.h"

#include <algorithm>
#include <cstring>

#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/tiles/tile_memory.h"

namespace gradwire::collective {

TileOwner::TileOwner(const ShardConfig& config, TileOps& ops, FoldQueue& folds,
                     TileFormats& formats)
    : TileOwner(config,
                tile_places(config.payload_bytes, config.nranks, config.tiles.scratch_bytes,
                            config.tiles.tile_bytes),
                ops, folds, formats) {}

TileOwner::TileOwner(const ShardConfig& config, const TilePlaces& places, TileOps& ops,
                     FoldQueue& folds, TileFormats& formats)
    : config_(config),
      ops_(ops),
      folds_(folds),
      formats_(formats),
      row_bytes_(places.result_bytes),
      parts_(places.parts, places.part_bytes),
      results_(places),
      sources_(config.nranks) {}

void TileOwner::begin(TileOp& op) const noexcept {
  op.tiles = op.cut.tiles(config_.rank, config_.lane);
  if (!op.sums) op.started = op.tiles;
}

TileOp* TileOwner::start_next() noexcept {
  if (parts_.empty()) return nullptr;
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    const bool newest_first = planted(PlantedBug::kTilesStartInAnyOrder);
    TileOp& op = ops_.at(newest_first ? ops_.size() - 1 - i : i);
    if (!has_to_start(op)) continue;
    if (op.started - op.folded == TileOp::kStartedMax) return nullptr;
    if (op.keeps && results_.empty()) return nullptr;
    require(op.started < op.tiles, "a tile that starts is one of this owner's");
    const std::uint32_t at = op.started % TileOp::kStartedMax;
    const std::uint32_t sources = config_.nranks - (config_.folds_only() ? 0u : 1u);
    op.missing[at] = sources * op.cut.tile(config_.rank, config_.lane, op.started).chunks;
    op.place[at] = parts_.take();
    if (op.keeps) results_.start(op, ops_.place_of(op));
    ++op.started;
    return &op;
  }
  return nullptr;
}

TileOp* TileOwner::foldable() const noexcept {
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    TileOp& op = ops_.at(i);
    if (op.folded < op.started && !op.sums) return &op;
    if (op.folded < op.started && op.missing[op.folded % TileOp::kStartedMax] == 0) return &op;
  }
  return nullptr;
}

bool TileOwner::load_own_part(const TileOp& op, const TileCut::Tile& tile,
                              std::byte* row) noexcept {
  return folds_.backend().run(load_of(config_, op.spec, tile, 0, tile.count, row));
}

/// In an all-gather members' outputs get what this rank gives.
bool TileOwner::copy_next(TileOp& op) noexcept {
  const TileCut::Tile tile = op.cut.tile(config_.rank, config_.lane, op.folded);
  const ChunkMemory memory = memory_of(config_, op.spec, tile, 0);
  const std::byte* const from =
      memory.inputs[0] + memory.first_input * element_bytes(op.spec.datatype);
  ++op.folded;
  return folds_.backend().run(store_of(config_, op.spec, tile, 0, tile.count, from));
}

reduce::Entry TileOwner::result_of(const TileOp& op, const ChunkMemory& memory,
                                   std::uint32_t count) const noexcept {
  reduce::Entry entry;
  entry.datatype = op.spec.datatype;
  entry.redop = op.spec.redop;
  entry.finalize = true;
  entry.output_count = memory.output_count;
  entry.count = count;
  entry.divisor = config_.processes().count();
  entry.outputs = memory.outputs;
  return entry;
}

bool TileOwner::take_part(const TileOp& op, std::uint16_t source, const TileCut::Tile& tile,
                          const TileCut::Chunk& chunk,
                          std::span<const std::byte> payload) noexcept {
  require_dear([&] { return payload.size() == op.cut.wire_bytes(chunk.count); },
               "a part is as long as its chunk");
  if (!folds_chunks(op)) {
    std::memcpy(part(op, source, chunk), payload.data(), payload.size());
    return true;
  }
  const ChunkMemory memory = memory_of(config_, op.spec, tile, chunk.at);
  const std::uint32_t width = element_bytes(op.spec.datatype);
  reduce::Entry entry = result_of(op, memory, chunk.count);
  entry.kind = reduce::Kind::kReduceToOutput;
  entry.member_count = memory.input_count;
  entry.packet = const_cast<std::byte*>(payload.data());  // It is only read.
  entry.inputs = memory.inputs;
  entry.factors = op.spec.factors;
  entry.offset_bytes = memory.first_input * width;
  entry.output_shift_bytes = static_cast<std::int64_t>(memory.first_output * width) -
                             static_cast<std::int64_t>(entry.offset_bytes);
  return folds_.run(entry);
}

bool TileOwner::fold_next(TileOp& op) noexcept {
  require(op.folded < op.started, "a tile is folded once it has started");
  if (!op.sums) return copy_next(op);
  const std::uint16_t place = op.place[op.folded % TileOp::kStartedMax];
  const bool same = op.spec.wire == WireFormat::kSame;
  const bool good = folds_chunks(op) || (same ? fold(op, place) : fold_encoded(op, place));
  if (!good) return false;
  parts_.give_back(place);
  ++op.folded;
  // Whoever might pull it may have left.
  if (op.keeps) (void)results_.give_back(op, ops_.place_of(op));
  return true;
}

bool TileOwner::taken(TileOp& op, std::uint32_t first, std::uint32_t end) noexcept {
  if (!op.keeps) return false;
  const std::uint32_t op_place = ops_.place_of(op);
  results_.taken(op, op_place, first, end);
  return results_.give_back(op, op_place);
}

/// The own part is encoded like any other, so that the bits do not depend on who owns.
bool TileOwner::fold_encoded(const TileOp& op, std::uint16_t place) noexcept {
  const TileCut::Tile tile = op.cut.tile(config_.rank, config_.lane, op.folded);
  const std::uint32_t first = op.folded * op.cut.chunks_of_tile();
  for (std::uint32_t i = 0; i < tile.chunks && !config_.folds_only(); ++i) {
    const TileCut::Chunk chunk = op.cut.chunk_of(tile, first + i);
    if (!formats_.make_part(op, tile, chunk, part(op, config_.rank, chunk))) return false;
  }
  std::byte* const result = op.encodes ? results_.at(ops_.place_of(op), op.folded) : nullptr;
  return formats_.fold(op, op.folded, {parts_.at(place), row_bytes_}, result);
}

bool TileOwner::fold(const TileOp& op, std::uint16_t place) noexcept {
  const TileCut::Tile tile = op.cut.tile(config_.rank, config_.lane, op.folded);
  const std::uint32_t width = element_bytes(op.spec.datatype);
  const bool in_memory = is_own_in_memory(op);
  const bool has_own = !config_.folds_only();
  std::byte* const result = has_own ? nullptr : results_.at(ops_.place_of(op), op.folded);
  if (has_own && !in_memory && !load_own_part(op, tile, row(place, config_.rank))) return false;
  for (std::uint32_t i = 0; i < op.cut.runs(tile); ++i) {
    TileCut::Run run = op.cut.run(tile, i);
    if (planted(PlantedBug::kTileFoldedInOwnOrder)) {
      run.first_rank = static_cast<std::uint16_t>((config_.rank + 1) % config_.nranks);
    }
    const ChunkMemory memory = memory_of(config_, op.spec, tile, run.at);
    for (std::uint32_t h = 0; h < config_.nranks; ++h) {
      const auto rank = static_cast<std::uint16_t>((run.first_rank + h) % config_.nranks);
      const std::byte* part = row(place, rank) + std::size_t{run.at} * width;
      if (rank == config_.rank && in_memory) {
        part = memory.inputs[0] + memory.first_input * width;
      }
      sources_[h] = part;
    }
    reduce::Entry entry = result_of(op, memory, run.count);
    entry.kind = reduce::Kind::kFoldInOrder;
    entry.member_count = config_.member_count;
    entry.source_count = config_.nranks;
    entry.inputs = sources_.data();
    if (!has_own) {
      entry.packet = result + std::size_t{run.at} * width;
      entry.outputs = nullptr;
    }
    entry.output_shift_bytes = static_cast<std::int64_t>(memory.first_output * width);
    if (!folds_.backend().run(entry)) return false;
  }
  return true;
}

}  // namespace gradwire::collective
