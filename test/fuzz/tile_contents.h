// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What is in ops by tiles that a hostile group runs: what each process gives, and what comes of
/// it, chunk by chunk, in whatever format the op has. Sums and formats are the reduce library's
/// own; which elements they are of, and in which order, is found here.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "collective/shard.h"
#include "collective/tiles/tile_memory.h"
#include "fuzz/input.h"
#include "reduce/formats/codec.h"

namespace gradwire::fuzz {

class TileContents {
 public:
  using Bytes = std::vector<std::byte>;

  /// @param config   outlives it.
  /// @param formats  whether sums of fp32 have one, and some of them residuals.
  TileContents(const collective::ShardConfig& config, std::uint64_t first_kind, bool formats)
      : config_(config), first_kind_(first_kind), formats_(formats) {}

  /// What an op is called with: it follows from its number, so that peers know.
  collective::OpSpec spec_of(std::uint64_t op_seq) const {
    constexpr std::array kKinds = {Collective::kAllReduce, Collective::kReduceScatter,
                                   Collective::kAllReduce, Collective::kAllGather,
                                   Collective::kAllReduce, Collective::kAllReduce,
                                   Collective::kAllGather, Collective::kBroadcast};
    constexpr std::array<std::uint32_t, 6> kCounts = {1, 17, 60, 200, 700, 2500};
    const std::uint64_t mixed = op_seq * 0x9e3779b97f4a7c15u;
    collective::OpSpec spec;
    spec.op_seq = op_seq;
    spec.collective = kKinds[(op_seq + first_kind_) % kKinds.size()];
    spec.datatype = (mixed >> 40 & 1) != 0 ? DataType::kInt32 : DataType::kUint8;
    spec.count = kCounts[(mixed >> 48) % kCounts.size()];
    if (formats_ && reduces(spec.collective)) {
      spec.datatype = DataType::kFloat32;
      spec.wire = (mixed >> 40 & 1) != 0 ? WireFormat::kInt8 : WireFormat::kBf16;
      spec.count *= 3;
      if ((mixed >> 41 & 3) == 3) spec.collective = Collective::kReduce;
    }
    if (has_root(spec.collective)) spec.root = 0;
    return spec;
  }
  /// Whether what the encoding of this rank's parts loses is kept, and was before.
  static bool feeds_back(const collective::OpSpec& spec) {
    return spec.wire != WireFormat::kSame && spec.op_seq % 3 != 0;
  }
  static void store(std::byte* to, DataType type, std::uint32_t number) {
    const float real = static_cast<float>(number % 509) / 8 - 20;
    if (type == DataType::kFloat32) return static_cast<void>(std::memcpy(to, &real, sizeof real));
    std::memcpy(to, &number, element_bytes(type));  // Whatever is wider wraps.
  }
  static std::uint32_t value(std::uint64_t op_seq, std::uint64_t process, std::uint64_t at) {
    return static_cast<std::uint32_t>((op_seq * 131 + process * 7919 + at) * 2'654'435'761u >> 7);
  }
  /// The residual that this rank's member 0 begins with.
  static float residual(std::uint64_t op_seq, std::uint64_t at) {
    return static_cast<float>(value(op_seq, 99, at) % 64) / 256;
  }

  /// What a chunk carries: a source's part, or a result; nothing if there is no such chunk.
  Bytes wire_of(const collective::OpSpec& spec, std::uint32_t number, bool result,
                std::uint16_t owner, std::uint16_t source) const {
    const collective::TileCut cut = cut_of(config_, spec);
    if (!cut.supported() || number >= cut.chunks(owner, config_.lane)) return {};
    const collective::TileCut::Chunk chunk = cut.chunk(owner, config_.lane, number);
    const collective::TileCut::Tile tile = cut.tile(owner, config_.lane, chunk.tile);
    if (chunk.count == 0 || (!result && source >= config_.nranks)) return {};
    if (spec.wire == WireFormat::kSame) return same(spec, tile, chunk, result, source);
    if (!result) return part(spec, tile, chunk, source, nullptr);
    Bytes wire(cut.wire_bytes(chunk.count));
    make_result(spec, cut, tile, chunk, wire, {});
    return wire;
  }
  /// What a chunk of a result is in the outputs of those that get it.
  Bytes output_of(const collective::OpSpec& spec, const collective::TileCut::Tile& tile,
                  const collective::TileCut::Chunk& chunk) const {
    if (spec.wire == WireFormat::kSame) return same(spec, tile, chunk, true, 0);
    const collective::TileCut cut = cut_of(config_, spec);
    const bool travels = spec.collective == Collective::kAllReduce;
    Bytes wire(travels ? cut.wire_bytes(chunk.count) : 0);
    Bytes values(chunk.count * sizeof(float));
    make_result(spec, cut, tile, chunk, wire, values);
    return values;
  }
  /// What encoding this rank's part of a chunk loses.
  Bytes lost_of(const collective::OpSpec& spec, const collective::TileCut::Tile& tile,
                const collective::TileCut::Chunk& chunk) const {
    Bytes lost(chunk.count * sizeof(float));
    (void)part(spec, tile, chunk, config_.rank, &lost);
    return lost;
  }

 private:
  using Tile = collective::TileCut::Tile;
  using Chunk = collective::TileCut::Chunk;

  std::uint64_t index_of(const collective::OpSpec& spec, const Tile& tile, std::uint64_t at) const {
    return tile.process_block * spec.count + tile.first + at;
  }
  Bytes same(const collective::OpSpec& spec, const Tile& tile, const Chunk& chunk, bool result,
             std::uint16_t source) const {
    const GroupProcesses processes = config_.processes();
    const std::size_t width = element_bytes(spec.datatype);
    Bytes bytes(chunk.count * width);
    for (std::uint32_t i = 0; i < chunk.count; ++i) {
      std::uint32_t sum = 0;
      if (spec.collective == Collective::kAllGather) {
        sum = value(spec.op_seq, tile.process_block, tile.first + chunk.at + i);
      } else {
        for (std::uint32_t process = 0; process < processes.count(); ++process) {
          if (!result && processes.rank_of(process) != source) continue;
          sum += value(spec.op_seq, process, index_of(spec, tile, chunk.at + i));
        }
      }
      store(&bytes[i * width], spec.datatype, sum);
    }
    return bytes;
  }
  Bytes part(const collective::OpSpec& spec, const Tile& tile, const Chunk& chunk,
             std::uint16_t source, Bytes* lost) const {
    const GroupProcesses processes = config_.processes();
    std::vector<Bytes> memory;
    std::vector<reduce::BytesIn> members;
    for (std::uint16_t member = 0; member < processes.members_of(source); ++member) {
      memory.emplace_back(chunk.count * sizeof(float));
      for (std::uint32_t i = 0; i < chunk.count; ++i) {
        store(&memory.back()[i * sizeof(float)], DataType::kFloat32,
              value(spec.op_seq, processes.process_of(source, member),
                    index_of(spec, tile, chunk.at + i)));
      }
    }
    members.assign(memory.begin(), memory.end());
    Bytes wire(wire_bytes(spec.wire, spec.datatype, chunk.count));
    std::vector<float> before;
    reduce::FormatPart made;
    made.format = spec.wire;
    made.members = members;
    made.wire = wire;
    if (source == config_.rank && feeds_back(spec)) {
      for (std::uint32_t i = 0; i < chunk.count; ++i) {
        before.push_back(residual(spec.op_seq, index_of(spec, tile, chunk.at + i)));
      }
      made.residual_in = std::as_bytes(std::span(before));
    }
    if (lost != nullptr) made.residual_out = *lost;
    FUZZ_CHECK(codec_.make_part(made));
    return wire;
  }
  /// Each element is summed from the rank on that its run says.
  void make_result(const collective::OpSpec& spec, const collective::TileCut& cut, const Tile& tile,
                   const Chunk& chunk, Bytes& wire, std::span<std::byte> stored) const {
    std::vector<Bytes> parts;
    for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) {
      parts.push_back(part(spec, tile, chunk, rank, nullptr));
    }
    std::vector<float> sum(chunk.count);
    for (std::uint32_t r = 0; r < cut.runs(tile); ++r) {
      const collective::TileCut::Run run = cut.run(tile, r);
      std::vector<float> of_run(chunk.count);
      std::vector<reduce::BytesIn> in_order;
      for (std::uint32_t h = 0; h < parts.size(); ++h) {
        in_order.emplace_back(parts[(run.first_rank + h) % parts.size()]);
      }
      reduce::FormatResult of;
      of.format = spec.wire;
      of.count = chunk.count;
      of.parts = in_order;
      of.stored = std::as_writable_bytes(std::span(of_run));
      FUZZ_CHECK(codec_.make_result(of));
      for (std::uint32_t i = 0; i < chunk.count; ++i) {
        const std::uint32_t at = chunk.at + i;
        if (at >= run.at && at - run.at < run.count) sum[i] = of_run[i];
      }
    }
    reduce::FormatResult all;
    all.format = spec.wire;
    all.count = chunk.count;
    all.sum = std::as_bytes(std::span(sum));
    all.wire = wire;
    all.stored = stored;
    FUZZ_CHECK(codec_.make_result(all));
  }

  const collective::ShardConfig& config_;
  std::uint64_t first_kind_;  ///< which collective op 0 would be
  bool formats_;
  reduce::FormatCodec codec_;
};

}  // namespace gradwire::fuzz
