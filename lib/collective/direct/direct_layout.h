// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Where what ranks give to an op off the ring lies in its scratch memory, and which chunks go from
/// whom to whom: parts to all, parts and sums of owners, or messages of slots that are gathered
/// (DirectOp). One lane owns it; it allocates at construction only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/direct/direct_scratch.h"
#include "collective/links/told_order.h"
#include "collective/ops/op_table.h"
#include "collective/shapes/shape.h"
#include "collective/shard_config.h"
#include "wire/packet.h"

namespace gradwire::collective {

class DirectLayout {
 public:
  /// All of them outlive it.
  /// @param at_once  the backend does entries before it returns.
  DirectLayout(const ShardConfig& config, const OpTable& ops, DirectScratch& scratch,
               ToldOrder& told_order, bool at_once)
      : config_(config), ops_(ops), scratch_(scratch), told_order_(told_order), at_once_(at_once) {}

  /// Scratch memory that an op off the ring needs.
  [[nodiscard]] std::uint64_t bytes_of(const OpPlan& plan, const OpSpec& spec) const noexcept;
  /// Lays out an op that was posted: who gives what to whom.
  /// @param others  all other ranks.
  DirectOp& open(const Op& op, const std::vector<std::uint16_t>& others) noexcept;
  /// Which of the other ranks is sent to first.
  [[nodiscard]] std::size_t first_to_send(const DirectOp& op) const noexcept;

  /// Where a chunk that came belongs.
  struct Arrival {
    std::uint64_t bit = 0;   ///< 0: it is nobody's
    std::uint64_t step = 0;  ///< all bits of its step from that rank
    std::uint64_t bytes = 0;
    std::byte* part = nullptr;  ///< where it is kept; nullptr: it goes to the outputs
  };
  [[nodiscard]] Arrival arrival_of(const DirectOp& op, std::uint16_t rank,
                                   const wire::DataHeader& header) const noexcept;
  /// A chunk that goes to a rank.
  struct Outgoing {
    std::uint32_t chunk = 0;
    std::uint32_t size = 0;
    std::uint8_t step = 0;  ///< as wire::DataHeader's
    const std::byte* bytes = nullptr;
    const std::uint32_t* crc = nullptr;  ///< nullptr: it is not known yet
  };
  [[nodiscard]] Outgoing outgoing_of(const DirectOp& op, std::uint16_t rank,
                                     std::uint32_t index) const noexcept;

  // Chunks and widths, for folds.
  struct Chunks {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };
  /// Chunks of this rank, on whatever lane, if the op has owners.
  [[nodiscard]] Chunks own_chunks(const DirectOp& op) const noexcept;
  /// Those of the op's phase, on whatever lane.
  [[nodiscard]] Chunks chunks_of_phase(const DirectOp& op) const noexcept;
  [[nodiscard]] bool is_on_lane(std::uint64_t chunk) const noexcept {
    return chunk % config_.lanes == config_.lane;
  }
  /// Bytes of an element as it is given.
  [[nodiscard]] std::uint32_t part_width(DataType datatype) const noexcept;
  [[nodiscard]] std::uint32_t sum_width(const DirectOp& op) const noexcept {
    return element_bytes(op.call.datatype());
  }
  /// What a chunk of the op's phase is: its elements, and where in scratch memory it lies.
  [[nodiscard]] ChunkSpan span_of(const Op& op, const DirectOp& direct) const noexcept;
  [[nodiscard]] std::byte* memory_of_chunk(const Op& op, const DirectOp& direct) const noexcept;
  [[nodiscard]] std::byte* where_loaded(const DirectOp& op, std::uint64_t chunk) const noexcept;
  [[nodiscard]] std::uint64_t part_place(const DirectOp& op, std::uint64_t chunk) const noexcept;
  [[nodiscard]] std::byte* own_part(const DirectOp& op, std::uint64_t chunk) const noexcept;
  [[nodiscard]] std::byte* sum(const DirectOp& op, std::uint64_t chunk) const noexcept;

 private:
  /// Bytes of scratch memory of an op that has owners.
  struct Sizes {
    std::uint64_t segment = 0;
    std::uint64_t owned = 0;  ///< segments
    std::uint64_t own_parts = 0;
    std::uint64_t parts = 0;
    std::uint64_t sums = 0;
    [[nodiscard]] std::uint64_t total() const noexcept { return own_parts + parts + sums; }
  };
  [[nodiscard]] Sizes sizes_of(const Partition& partition, const Route& route,
                               const direct::Steps& steps, DataType datatype) const noexcept;
  [[nodiscard]] std::uint64_t stride_of(const Partition& partition, std::uint64_t lane_chunks,
                                        DataType datatype) const noexcept;
  [[nodiscard]] static std::uint64_t segments_of(const Partition& partition) noexcept {
    const std::uint64_t each = partition.chunks_per_segment();
    return (partition.total_chunks() + each - 1) / each;
  }
  DirectOp& open_to_all(const Op& op) noexcept;
  DirectOp& open_owners(const Op& op, const std::vector<std::uint16_t>& others) noexcept;
  /// Of an op that has owners: this lane's chunks of a rank, and where chunks lie.
  [[nodiscard]] std::uint64_t owned_on_lane(const DirectOp& op, std::uint16_t rank) const noexcept;
  [[nodiscard]] std::uint64_t first_owned(const DirectOp& op, std::uint16_t rank) const noexcept;
  [[nodiscard]] std::uint64_t place_of(const DirectOp& op, std::uint64_t chunk) const noexcept;

  // direct_gathered.cc
  DirectOp& open_gathered(const Op& op) noexcept;
  [[nodiscard]] std::uint64_t gathered_scratch(const OpSpec& spec) const noexcept;
  [[nodiscard]] std::uint64_t message_bytes(const DirectOp& op,
                                            std::uint32_t distance) const noexcept;
  [[nodiscard]] std::uint64_t message_bits(const DirectOp& op,
                                           std::uint32_t distance) const noexcept;
  [[nodiscard]] std::uint32_t message_chunk_bytes(const DirectOp& op, std::uint32_t distance,
                                                  std::uint64_t chunk) const noexcept;
  [[nodiscard]] static ChunkSpan block_of(const Op& op, std::uint32_t place) noexcept;
  [[nodiscard]] std::byte* block_at(const Op& op, const DirectOp& direct,
                                    std::uint32_t place) const noexcept;

  const ShardConfig& config_;
  const OpTable& ops_;
  DirectScratch& scratch_;
  ToldOrder& told_order_;
  const bool at_once_;
};

}  // namespace gradwire::collective
