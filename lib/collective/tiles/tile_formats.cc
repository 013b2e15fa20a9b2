// SPDX-License-Identifier: BSD-3-Clause
#include "collective/tiles/tile_formats.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/planted_bug.h"
#include "collective/tiles/tile_memory.h"

namespace gradwire::collective {

using reduce::BytesIn;
using reduce::BytesOut;

namespace {

std::size_t largest_chunk(std::uint32_t payload_bytes) {
  std::size_t most = 0;
  for (const WireFormat format : {WireFormat::kBf16, WireFormat::kInt8}) {
    most = std::max(most, elements_in_chunk(format, DataType::kFloat32, payload_bytes));
  }
  return most;
}

BytesOut floats(std::vector<float>& values, std::size_t count) noexcept {
  return std::as_writable_bytes(std::span(values).first(count));
}

}  // namespace

TileFormats::TileFormats(const ShardConfig& config)
    : config_(config),
      parts_(config.nranks),
      sum_(largest_chunk(config.payload_bytes)),
      run_sum_(sum_.size()) {}

bool TileFormats::make_part(const TileOp& op, const TileCut::Tile& tile,
                            const TileCut::Chunk& chunk, std::byte* wire) noexcept {
  const ChunkMemory memory = memory_of(config_, op.spec, tile, chunk.at);
  const std::size_t width = element_bytes(op.spec.datatype);
  for (std::uint16_t i = 0; i < memory.input_count; ++i) {
    members_[i] = {memory.inputs[i] + memory.first_input * width, chunk.count * width};
  }
  reduce::FormatPart part;
  part.format = op.spec.wire;
  part.datatype = op.spec.datatype;
  part.members = std::span(members_).first(memory.input_count);
  part.wire = {wire, op.cut.wire_bytes(chunk.count)};
  const std::size_t first = memory.first_input * sizeof(float);
  const std::size_t bytes = chunk.count * sizeof(float);
  if (op.spec.residual_in != nullptr) part.residual_in = {op.spec.residual_in + first, bytes};
  if (op.spec.residual_out != nullptr) part.residual_out = {op.spec.residual_out + first, bytes};
  if (!codec_.make_part(part)) return false;
  const bool has_both = !part.residual_in.empty() && !part.residual_out.empty();
  if (planted(PlantedBug::kResidualAddedTwice) && has_both) {
    std::memcpy(const_cast<std::byte*>(part.residual_in.data()), part.residual_out.data(), bytes);
  }
  return true;
}

bool TileFormats::store(const TileOp& op, const TileCut::Tile& tile, const TileCut::Chunk& chunk,
                        BytesIn wire) noexcept {
  const ChunkMemory memory = memory_of(config_, op.spec, tile, chunk.at);
  const std::size_t width = element_bytes(op.spec.datatype);
  const BytesOut values{memory.outputs[0] + memory.first_output * width, chunk.count * width};
  if (!codec_.decode(op.spec.wire, op.spec.datatype, wire, values)) return false;
  copy_to_others(op, tile, chunk);
  return true;
}

bool TileFormats::fold(const TileOp& op, std::uint32_t index, const TileRows& rows,
                       std::byte* result) noexcept {
  const TileCut::Tile tile = op.cut.tile(config_.rank, config_.lane, index);
  const std::uint32_t first = index * op.cut.chunks_of_tile();
  std::uint32_t run = 0;
  for (std::uint32_t i = 0; i < tile.chunks; ++i) {
    const TileCut::Chunk chunk = op.cut.chunk_of(tile, first + i);
    while (op.cut.run(tile, run).at + op.cut.run(tile, run).count <= chunk.at) ++run;
    std::byte* const wire = result == nullptr ? nullptr : result + op.cut.wire_bytes(chunk.at);
    if (!fold_chunk({op, tile, chunk, rows, run}, wire)) return false;
    copy_to_others(op, tile, chunk);
  }
  return true;
}

bool TileFormats::fold_chunk(const Sum& sum, std::byte* result) noexcept {
  const auto& [op, tile, chunk, rows, first_run] = sum;
  const ChunkMemory memory = memory_of(config_, op.spec, tile, chunk.at);
  const std::size_t width = element_bytes(op.spec.datatype);
  reduce::FormatResult of;
  of.format = op.spec.wire;
  of.datatype = op.spec.datatype;
  of.count = chunk.count;
  of.divisor = op.spec.redop == RedOp::kAvg ? config_.processes().count() : 1;
  if (result != nullptr) of.wire = {result, op.cut.wire_bytes(chunk.count)};
  if (!config_.folds_only()) {
    of.stored = {memory.outputs[0] + memory.first_output * width, chunk.count * width};
  }
  const TileCut::Run run = op.cut.run(tile, first_run);
  if (run.at + run.count >= chunk.at + chunk.count) {
    line_up(sum, run.first_rank);
    of.parts = parts_;
  } else {
    if (!sum_runs(sum)) return false;
    of.sum = floats(sum_, chunk.count);
  }
  return codec_.make_result(of);
}

/// A block has one scale, whatever the order in which its elements are summed: the chunk is summed
/// in the order of each run, and of each sum the run's own elements count.
bool TileFormats::sum_runs(const Sum& sum) noexcept {
  const TileCut::Chunk& chunk = sum.chunk;
  const std::uint32_t chunk_end = chunk.at + chunk.count;
  reduce::FormatResult of;
  of.format = sum.op.spec.wire;
  of.count = chunk.count;
  of.stored = floats(run_sum_, chunk.count);
  for (std::uint32_t i = sum.run; i < sum.op.cut.runs(sum.tile); ++i) {
    const TileCut::Run run = sum.op.cut.run(sum.tile, i);
    if (run.at >= chunk_end) break;
    line_up(sum, run.first_rank);
    of.parts = parts_;
    if (!codec_.make_result(of)) return false;
    const std::uint32_t begin = std::max(run.at, chunk.at) - chunk.at;
    const std::uint32_t end = std::min(run.at + run.count, chunk_end) - chunk.at;
    std::copy(run_sum_.begin() + begin, run_sum_.begin() + end, sum_.begin() + begin);
  }
  return true;
}

void TileFormats::line_up(const Sum& sum, std::uint16_t first_rank) noexcept {
  const TileCut& cut = sum.op.cut;
  const std::uint32_t at = cut.wire_bytes(sum.chunk.at);
  const std::size_t bytes = cut.wire_bytes(sum.chunk.count);
  std::size_t rank = first_rank;
  if (planted(PlantedBug::kTileFoldedInOwnOrder)) rank = (config_.rank + 1u) % config_.nranks;
  for (BytesIn& part : parts_) {
    part = {sum.rows.first + rank * sum.rows.bytes + at, bytes};
    rank = rank + 1 == parts_.size() ? 0 : rank + 1;
  }
}

void TileFormats::copy_to_others(const TileOp& op, const TileCut::Tile& tile,
                                 const TileCut::Chunk& chunk) noexcept {
  if (config_.folds_only()) return;
  const ChunkMemory memory = memory_of(config_, op.spec, tile, chunk.at);
  const std::size_t width = element_bytes(op.spec.datatype);
  const std::size_t first = memory.first_output * width;
  for (std::uint16_t i = 1; i < memory.output_count; ++i) {
    std::memcpy(memory.outputs[i] + first, memory.outputs[0] + first, chunk.count * width);
  }
}

}  // namespace gradwire::collective
