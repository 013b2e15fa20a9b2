// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// An op by tiles that a fuzzed shard has: the memory of its members, and whether what lies there
/// at its end is right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "collective/shard.h"
#include "collective/tiles/tile_memory.h"
#include "fuzz/input.h"
#include "fuzz/tile_contents.h"

namespace gradwire::fuzz {

class TileOp {
 public:
  /// Gives `spec` memory, of exact sizes, so that a sanitizer sees what goes past it.
  /// @param config  outlives it.
  TileOp(const collective::ShardConfig& config, collective::OpSpec& spec) : config_(config) {
    const GroupProcesses processes = config_.processes();
    const std::uint64_t blocks = processes.count();
    const std::size_t width = element_bytes(spec.datatype);
    const bool in_place = spec.op_seq % 2 == 0 && spec.collective == Collective::kAllReduce;
    const std::uint64_t in =
        spec.count * (spec.collective == Collective::kReduceScatter ? blocks : 1);
    const std::uint64_t out = spec.count * (spec.collective == Collective::kAllGather ? blocks : 1);
    for (std::uint16_t member = 0; member < config_.member_count; ++member) {
      memory_.push_back(std::make_unique<std::byte[]>(in * width));
      std::byte* const input = memory_.back().get();
      for (std::uint64_t i = 0; i < in; ++i) {
        TileContents::store(
            input + i * width, spec.datatype,
            TileContents::value(spec.op_seq, processes.process_of(config_.rank, member), i));
      }
      if (!in_place) memory_.push_back(std::make_unique<std::byte[]>(out * width));
      spec.inputs[member] = input;
      spec.outputs[member] = memory_.back().get();
      outputs_.push_back(memory_.back().get());
    }
    if (TileContents::feeds_back(spec)) {
      for (const bool before : {true, false}) {
        memory_.push_back(std::make_unique<std::byte[]>(in * sizeof(float)));
        std::byte* const residual = memory_.back().get();
        (before ? const_cast<std::byte*&>(spec.residual_in) : spec.residual_out) = residual;
        for (std::uint64_t i = 0; before && i < in; ++i) {
          const float value = TileContents::residual(spec.op_seq, i);
          std::memcpy(residual + i * sizeof value, &value, sizeof value);
        }
      }
      lost_ = spec.residual_out;
    }
  }

  /// The shard may refer to its memory.
  [[nodiscard]] bool active() const { return active_; }
  void end() { active_ = false; }
  [[nodiscard]] bool has_memory() const { return !memory_.empty(); }
  void free_memory() { memory_.clear(); }

  /// Of the tiles of this lane: all that this rank gets.
  void check_results(const collective::OpSpec& spec, const TileContents& contents) const {
    const collective::TileCut cut = cut_of(config_, spec);
    const bool scatters = spec.collective == Collective::kReduceScatter;
    const bool is_root = spec.collective != Collective::kReduce ||
                         config_.processes().rank_of(spec.root) == config_.rank;
    for (std::uint16_t owner = 0; owner < config_.all_ranks(); ++owner) {
      for (std::uint32_t index = 0; index < cut.tiles(owner, config_.lane); ++index) {
        const collective::TileCut::Tile tile = cut.tile(owner, config_.lane, index);
        for (std::uint32_t i = 0; i < tile.chunks; ++i) {
          const collective::TileCut::Chunk chunk =
              cut.chunk_of(tile, index * cut.chunks_of_tile() + i);
          if (lost_ != nullptr) check_lost(spec, tile, chunk, contents);
          if (is_root && (!scatters || owner == config_.rank)) {
            check_chunk(spec, tile, chunk, contents);
          }
        }
      }
    }
  }

 private:
  void check_chunk(const collective::OpSpec& spec, const collective::TileCut::Tile& tile,
                   const collective::TileCut::Chunk& chunk, const TileContents& contents) const {
    const std::vector<std::byte> right = contents.output_of(spec, tile, chunk);
    const bool gathers = spec.collective == Collective::kAllGather;
    const std::uint64_t first =
        tile.first + chunk.at + (gathers ? tile.process_block * spec.count : 0);
    for (std::uint16_t member = 0; member < config_.member_count; ++member) {
      if (spec.collective == Collective::kReduceScatter &&
          member != config_.processes().member_of(tile.process_block)) {
        continue;
      }
      if (spec.collective == Collective::kReduce &&
          member != config_.processes().member_of(spec.root)) {
        continue;
      }
      FUZZ_CHECK(std::memcmp(outputs_[member] + first * element_bytes(spec.datatype), right.data(),
                             right.size()) == 0);
    }
  }
  void check_lost(const collective::OpSpec& spec, const collective::TileCut::Tile& tile,
                  const collective::TileCut::Chunk& chunk, const TileContents& contents) const {
    const std::vector<std::byte> right = contents.lost_of(spec, tile, chunk);
    const std::uint64_t first = tile.process_block * spec.count + tile.first + chunk.at;
    const std::span lost(lost_ + first * sizeof(float), right.size());
    // An owner may say that it has what it never asked for.
    const bool never_made = tile.owner != config_.rank &&
                            std::ranges::all_of(lost, [](std::byte b) { return b == std::byte{}; });
    FUZZ_CHECK(never_made || std::ranges::equal(lost, right));
  }

  const collective::ShardConfig& config_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::byte*> outputs_;
  std::byte* lost_ = nullptr;  ///< residual_out, if it has one
  bool active_ = true;
};

}  // namespace gradwire::fuzz
