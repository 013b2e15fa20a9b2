// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Where a part of a tile lies in this rank's members' memory, and the backend's entries for it.
/// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/ops/op_memory.h"
#include "collective/ops/op_spec.h"
#include "collective/shard_config.h"
#include "collective/tiles/tile_cut.h"
#include "reduce/backend.h"

namespace gradwire::collective {

[[nodiscard]] inline TileCut cut_of(const ShardConfig& config, const OpSpec& spec) noexcept {
  return {config.tile_group(),
          {.collective = spec.collective,
           .datatype = spec.datatype,
           .format = spec.wire,
           .count = spec.count,
           .root = spec.root}};
}

/// @param at  element of the tile. Of what the collective does not have at this rank (the input of
///            another rank's process) nothing is to be read.
[[nodiscard]] inline ChunkMemory memory_of(const ShardConfig& config, const OpSpec& spec,
                                           const TileCut::Tile& tile, std::uint64_t at) noexcept {
  const std::uint64_t first = tile.first + at;
  const std::uint64_t in_blocks = tile.process_block * spec.count + first;
  const GroupProcesses processes = config.processes();
  ChunkMemory memory{spec.inputs.data(),
                     spec.outputs.data(),
                     config.member_count,
                     config.member_count,
                     first,
                     first};
  if (spec.collective == Collective::kAllGather) {
    memory.inputs += processes.member_of(tile.process_block);
    memory.input_count = 1;
    memory.first_output = in_blocks;
  } else if (spec.collective == Collective::kReduceScatter) {
    memory.outputs += processes.member_of(tile.process_block);
    memory.output_count = 1;
    memory.first_input = in_blocks;
  } else if (spec.collective == Collective::kReduce) {
    memory.outputs += processes.member_of(spec.root);
    memory.output_count = 1;
  }
  return memory;
}

/// What this rank gives: its members' elements, folded. Of an op without parts those of the
/// process whose block it is.
[[nodiscard]] inline reduce::Entry load_of(const ShardConfig& config, const OpSpec& spec,
                                           const TileCut::Tile& tile, std::uint64_t at,
                                           std::uint32_t count, std::byte* to) noexcept {
  const ChunkMemory memory = memory_of(config, spec, tile, at);
  reduce::Entry load;
  load.kind = reduce::Kind::kLoad;
  load.datatype = spec.datatype;
  load.redop = spec.redop;
  load.member_count = memory.input_count;
  load.count = count;
  load.packet = to;
  load.inputs = memory.inputs;
  load.factors = reduces(spec.collective) ? spec.factors : nullptr;
  load.offset_bytes = memory.first_input * element_bytes(spec.datatype);
  return load;
}

/// A result goes to the outputs of all members that get it.
[[nodiscard]] inline reduce::Entry store_of(const ShardConfig& config, const OpSpec& spec,
                                            const TileCut::Tile& tile, std::uint64_t at,
                                            std::uint32_t count, const std::byte* from) noexcept {
  const ChunkMemory memory = memory_of(config, spec, tile, at);
  reduce::Entry store;
  store.kind = reduce::Kind::kStore;
  store.datatype = spec.datatype;
  store.member_count = memory.output_count;
  store.count = count;
  store.packet = const_cast<std::byte*>(from);  // A store only reads it.
  store.inputs = spec.inputs.data();
  store.outputs = memory.outputs;
  store.offset_bytes = memory.first_output * element_bytes(spec.datatype);
  return store;
}

}  // namespace gradwire::collective
