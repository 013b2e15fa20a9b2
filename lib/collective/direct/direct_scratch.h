// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The scratch memory of ops off the ring: parts of other ranks until they are folded, and what
/// this rank sends until all others have acknowledged it. Packets, also repeated ones, are made
/// from it. Ops get memory and give it back in their order. One lane owns it; it allocates at
/// construction only. For many ranks that is tens of megabytes, of which most groups use little:
/// its pages are there when they are used first (base/zeroed_array.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/zeroed_array.h"
#include "collective/ops/chunk.h"
#include "collective/ops/op_table.h"
#include "collective/shapes/shape_direct.h"
#include "collective/shapes/shape_gathered.h"

namespace gradwire::collective {

/// One op. What goes from one rank to another, and the other way, is a set of chunks: a bit each.
///
/// If parts go to all, bit i is this lane's i-th chunk. If they are gathered, it is the i-th of the
/// message that goes from the one to the other. Else bit i, below direct::kOwnedMax, is the
/// part of the i-th chunk of those that the receiver owns, on whatever lane; and from there on bit
/// i is the i-th of those that the sender owns, which it sends to all: a sum, or what was its own.
struct DirectOp {
  /// What the backend does next, if it is not doing it: each needs what came before.
  enum class Phase : std::uint8_t {
    kLoad,   ///< our part, from the inputs
    kFold,   ///< when all parts are here
    kStore,  ///< what owners have, into the outputs
    kSums,   ///< nothing: sums are still to come
    kDone,
  };
  std::uint64_t op_seq = 0;
  OpCall call;
  Partition partition;
  Route route;
  direct::Steps steps;
  std::byte* memory = nullptr;
  std::size_t taken = 0;           ///< of the memory, what was skipped before it too
  std::uint64_t stride = 0;        ///< bytes of what is kept of each rank, a multiple of kAlignment
  std::uint64_t segment = 0;       ///< bytes of a segment, if there are owners; likewise
  std::byte* parts = nullptr;      ///< [nranks] times `stride`: what was given to this rank
  std::byte* own_parts = nullptr;  ///< [segments] times `segment`: what this one gives to owners
  /// [owned] times `segment`: what this owner sends to all. If sums are stored when all are here,
  /// [segments] times that.
  std::byte* sums = nullptr;
  std::uint64_t owned = 0;          ///< chunks that this rank owns
  std::uint32_t missing_parts = 0;  ///< ranks whose parts are not all here
  std::uint32_t missing_sums = 0;   ///< owners whose segments are not all here
  std::uint32_t unacked_ranks = 0;  ///< that have not acknowledged all of ours
  std::uint16_t first_source = 0;   ///< whose part was all here first, if not our own
  std::uint64_t next_chunk = 0;     ///< of this phase: the next for which there is no entry yet
  std::uint64_t next_element = 0;   ///< in it
  std::uint32_t in_backend = 0;     ///< entries
  Phase phase = Phase::kLoad;
  /// `parts` lie by the ranks' distance from this one; one behind the other.
  bool gathered = false;
  std::uint32_t reach = 0;  ///< of a gathered op: ranks from this one on whose slots are here
  bool to_fold = false;     ///< parts are to be folded here
  bool loaded = false;      ///< our part lies here and may be sent
  bool sums_ready = false;  ///< they may be sent
  std::array<std::uint32_t, direct::kChunksMax> crcs{};  ///< of chunks that go to all

  /// Whether nothing is left to do here, but to send.
  [[nodiscard]] bool done() const noexcept { return phase == Phase::kDone; }
  [[nodiscard]] bool in_two_steps() const noexcept { return steps.to_owner && steps.from_owner; }
  [[nodiscard]] std::byte* part_of(std::uint16_t rank) const noexcept {
    if (gathered) return parts + gathered::distance(rank, route.rank, route.nranks) * stride;
    return parts + rank * stride;
  }
};
/// What may be sent in the first step.
inline constexpr std::uint64_t kPartBits = (std::uint64_t{1} << direct::kOwnedMax) - 1;

class DirectScratch {
 public:
  /// Most ops at once, if they are small. A power of two.
  static constexpr std::uint32_t kOps = 16;

  /// @param nranks  those without members, too.
  /// @param most_bytes  of memory that one op takes; there is room for two of them.
  /// @param memory  of twice that, which outlives it; nullptr: it makes its own.
  DirectScratch(std::uint16_t nranks, std::uint64_t most_bytes, std::byte* memory);

  /// Whether an op would get so much memory.
  [[nodiscard]] bool has_room(std::uint64_t bytes) const noexcept;
  /// The newest op, of which nothing goes anywhere yet. It has room.
  DirectOp& open(const Op& op, std::uint64_t bytes) noexcept;
  /// Frees the ops that nobody needs, oldest first.
  void release() noexcept;
  void clear() noexcept;

  /// How much of its memory ops have used so far.
  [[nodiscard]] std::size_t touched_bytes() const noexcept { return touched_; }
  [[nodiscard]] bool empty() const noexcept { return first_ == end_; }
  /// nullptr if it has none.
  [[nodiscard]] DirectOp* find(std::uint64_t op_seq) noexcept;
  /// The first op of those above `op_seq`; nullptr if there is none.
  [[nodiscard]] DirectOp* first_above(std::uint64_t op_seq) noexcept {
    return const_cast<DirectOp*>(std::as_const(*this).first_above(op_seq));
  }
  [[nodiscard]] const DirectOp* first_above(std::uint64_t op_seq) const noexcept;
  /// As first_above(), among the ops of which anything goes to `rank`.
  [[nodiscard]] DirectOp* first_to(std::uint16_t rank, std::uint64_t op_seq) noexcept {
    return const_cast<DirectOp*>(std::as_const(*this).first_to(rank, op_seq));
  }
  [[nodiscard]] const DirectOp* first_to(std::uint16_t rank, std::uint64_t op_seq) const noexcept;
  /// All that comes from `rank`.
  [[nodiscard]] std::uint64_t& expected(const DirectOp& op, std::uint16_t rank) noexcept {
    return expected_[place_of(op) * nranks_ + rank];
  }
  [[nodiscard]] std::uint64_t expected(const DirectOp& op, std::uint16_t rank) const noexcept {
    return expected_[place_of(op) * nranks_ + rank];
  }
  /// All that goes to `rank`, sooner or later.
  [[nodiscard]] std::uint64_t& given(const DirectOp& op, std::uint16_t rank) noexcept {
    return given_[place_of(op) * nranks_ + rank];
  }
  [[nodiscard]] std::uint64_t given(const DirectOp& op, std::uint16_t rank) const noexcept {
    return given_[place_of(op) * nranks_ + rank];
  }
  /// What of that may go already.
  [[nodiscard]] std::uint64_t ready(const DirectOp& op, std::uint16_t rank) const noexcept {
    if (!op.loaded) return 0;
    if (op.gathered) {
      const auto distance = gathered::distance(op.route.rank, rank, op.route.nranks);
      return distance <= op.reach ? given(op, rank) : 0;
    }
    return op.steps.to_all || op.sums_ready ? given(op, rank) : given(op, rank) & kPartBits;
  }
  /// Whether nothing that this rank sends to the other says that it has entered the op, before the
  /// other has sent all that it gives.
  [[nodiscard]] bool says_nothing(const DirectOp& op, std::uint16_t rank) const noexcept {
    if (op.gathered) return ready(op, rank) == 0;
    return (op.in_two_steps() ? given(op, rank) & kPartBits : given(op, rank)) == 0;
  }
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
  /// Whether anything of that was ever sent.
  [[nodiscard]] std::uint8_t& begun(const DirectOp& op, std::uint16_t rank) noexcept {
    return begun_[place_of(op) * nranks_ + rank];
  }
  /// Of what goes to a rank without members: as wire::DataHeader::since.
  [[nodiscard]] std::uint8_t& since(const DirectOp& op, std::uint16_t rank) noexcept {
    return since_[place_of(op) * nranks_ + rank];
  }
  /// The index-th of size().
  [[nodiscard]] DirectOp& at(std::uint32_t index) noexcept { return ops_[(first_ + index) % kOps]; }
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
  ZeroedArray<std::byte> own_memory_;
  std::byte* memory_;
  std::size_t memory_bytes_;
  std::size_t head_ = 0;  ///< the next free byte
  std::size_t used_ = 0;
  std::size_t touched_ = 0;              ///< the most that head_ was
  ZeroedArray<std::uint64_t> arrived_;   ///< [kOps x nranks]
  ZeroedArray<std::uint64_t> unsent_;    ///< [kOps x nranks]
  ZeroedArray<std::uint8_t> begun_;      ///< [kOps x nranks]
  ZeroedArray<std::uint8_t> since_;      ///< [kOps x nranks]
  ZeroedArray<std::uint64_t> expected_;  ///< [kOps x nranks]
  ZeroedArray<std::uint64_t> given_;     ///< [kOps x nranks]
};

}  // namespace gradwire::collective
