// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One op as the lane posts it, and what is told of it afterwards. Plain data; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "base/wire_format.h"
#include "collective/shapes/shape_kind.h"

namespace gradwire::collective {

/// Processes are numbered as base/process_layout.h says.
inline constexpr std::uint32_t kNoRoot = UINT32_MAX;

/// One op as the lane posts it; the same on every lane of the rank.
struct OpSpec {
  std::uint64_t op_seq = 0;  ///< 1, 2, 3, ... without a gap
  /// Elements: of all-gather those that each process gives, of reduce-scatter those that each
  /// process gets, else those of the whole op.
  std::uint64_t count = 0;
  std::uint32_t tag = 0;
  Collective collective = Collective::kAllReduce;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;  ///< of a collective that reduces
  /// How elements travel. Any other than `same` makes the op one by tiles, if it fits: see
  /// base/wire_format.h. Between one rank's processes nothing travels.
  WireFormat wire = WireFormat::kSame;
  std::uint32_t root = kNoRoot;     ///< a process, of a collective that has a root
  std::uint32_t element_bytes = 0;  ///< of kBytes, else 0
  /// [member_count of the group], and how many elements each has. They stay valid until the op's
  /// done event of this shard, or until the shard is closed.
  ///   all-reduce      inputs [count], outputs [count]
  ///   reduce          inputs [count], outputs [count], of the root alone
  ///   broadcast       inputs [count], of the root alone, outputs [count]
  ///   all-gather      inputs [count], outputs [processes x count]
  ///   reduce-scatter  inputs [processes x count], outputs [count]
  ///   barrier         none
  /// What is not named may be nullptr. In place: an input is where the output is, or is the part
  /// of it that is the member's own, and the other way round.
  std::array<const std::byte*, kMaxMembers> inputs{};
  std::array<std::byte*, kMaxMembers> outputs{};
  /// [member_count] of a premul-sum, as long as the inputs are: what each input is multiplied by.
  const double* factors = nullptr;
  /// Of an op with a format, fp32, as many as an input has elements, and valid as long as it is:
  /// added to what this rank gives before it is encoded, and what its encoding loses. They have no
  /// memory in common with each other, and residual_out none with an input or an output. nullptr:
  /// nothing is added, or what is lost is not wanted.
  const std::byte* residual_in = nullptr;
  std::byte* residual_out = nullptr;
};

/// Whether shards can do it. Shard::post() refuses the others: PostResult::kUnsupported.
[[nodiscard]] constexpr bool is_supported(Collective collective) noexcept {
  return is_valid(collective) && !is_transfer(collective);
}

/// When things happened to an op on this lane, and what it took.
struct OpRecord {
  TimeNs posted_at = 0;
  TimeNs first_chunk_at = 0;          ///< first chunk from the upstream rank; 0 = none came
  std::uint64_t bytes = 0;            ///< of the whole op, not of this lane's share
  std::uint64_t retransmissions = 0;  ///< of the shard while it was under way
  Collective collective = Collective::kAllReduce;
  WireFormat wire = WireFormat::kSame;
  Shape shape = Shape::kRing;
};

}  // namespace gradwire::collective
