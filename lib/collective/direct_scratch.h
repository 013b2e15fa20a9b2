// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The scratch memory of direct ops: the part of each rank until all are folded, and the part of
/// this rank until all others have acknowledged it. Packets, also repeated ones, are made from it.
/// Ops get memory and give it back in their order. One lane owns it; it allocates at construction
/// only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/chunk.h"
#include "collective/op_table.h"
#include "collective/shape_direct.h"

namespace gradwire::collective {

/// One op. Chunks are this lane's, counted from 0; a set of them is a bit each.
struct DirectOp {
  std::uint64_t op_seq = 0;
  OpCall call;
  Partition partition;
  std::byte* memory = nullptr;      ///< [nranks] times `stride`
  std::size_t taken = 0;            ///< of the memory, what was skipped before it too
  std::uint64_t stride = 0;         ///< bytes, a multiple of direct::kAlignment
  std::uint64_t all = 0;            ///< its chunks
  std::uint32_t missing_ranks = 0;  ///< whose contribution is not all here
  std::uint32_t unacked_ranks = 0;  ///< that have not acknowledged all of ours
  std::uint16_t first_source = 0;   ///< whose contribution was all here first, if not our own
  bool folded = false;
  std::array<std::uint32_t, direct::kChunksMax> crcs{};  ///< of our own chunks

  [[nodiscard]] bool complete() const noexcept { return missing_ranks == 0; }
  [[nodiscard]] std::byte* part_of(std::uint16_t rank) const noexcept {
    return memory + rank * stride;
  }
};

class DirectScratch {
 public:
  /// Most ops at once, if they are small. A power of two.
  static constexpr std::uint32_t kOps = 16;

  /// @param most_bytes  that one op takes; there is room for two of them.
  DirectScratch(std::uint16_t nranks, std::uint64_t most_bytes);

  /// Whether an op would get its memory. @param stride  bytes of each rank.
  [[nodiscard]] bool has_room(std::uint64_t stride) const noexcept;
  /// The newest op. It has room.
  DirectOp& open(const Op& op, std::uint64_t stride, std::uint64_t all) noexcept;
  /// Frees the ops that nobody needs, oldest first.
  void release() noexcept;
  void clear() noexcept;

  [[nodiscard]] bool empty() const noexcept { return first_ == end_; }
  /// nullptr if it has none.
  [[nodiscard]] DirectOp* find(std::uint64_t op_seq) noexcept;
  /// The first op of those above `op_seq`; nullptr if there is none.
  [[nodiscard]] DirectOp* first_above(std::uint64_t op_seq) noexcept {
    return const_cast<DirectOp*>(std::as_const(*this).first_above(op_seq));
  }
  [[nodiscard]] const DirectOp* first_above(std::uint64_t op_seq) const noexcept;
  /// What `rank` gave to the op and is here.
  [[nodiscard]] std::uint64_t& arrived(const DirectOp& op, std::uint16_t rank) noexcept {
    return arrived_[place_of(op) * nranks_ + rank];
  }
  [[nodiscard]] std::uint64_t arrived(const DirectOp& op, std::uint16_t rank) const noexcept {
    return arrived_[place_of(op) * nranks_ + rank];
  }
  /// What of ours is to be sent to `rank`, for the first time or again.
  [[nodiscard]] std::uint64_t& unsent(const DirectOp& op, std::uint16_t rank) noexcept {
    return unsent_[place_of(op) * nranks_ + rank];
  }
  /// The last op of which all that `rank` gives is here, among those up to `posted`.
  [[nodiscard]] std::uint64_t received_from(std::uint16_t rank,
                                            std::uint64_t posted) const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(end_ - first_);
  }

 private:
  [[nodiscard]] std::size_t place_of(const DirectOp& op) const noexcept {
    return static_cast<std::size_t>(&op - ops_.data());
  }

  std::uint16_t nranks_;
  std::array<DirectOp, kOps> ops_;
  std::uint64_t first_ = 0;  ///< [first_, end_) are in use, each at its number modulo kOps
  std::uint64_t end_ = 0;
  std::vector<std::byte> memory_;
  std::size_t head_ = 0;  ///< the next free byte
  std::size_t used_ = 0;
  std::vector<std::uint64_t> arrived_;  ///< [kOps x nranks]
  std::vector<std::uint64_t> unsent_;   ///< [kOps x nranks]
};

}  // namespace gradwire::collective
