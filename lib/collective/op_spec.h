// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One op as the lane posts it, and what is told of it afterwards. Plain data; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace gradwire::collective {

/// One op as the lane posts it; the same on every lane of the rank.
struct OpSpec {
  std::uint64_t op_seq = 0;  ///< 1, 2, 3, ... without a gap
  std::uint64_t count = 0;   ///< elements
  std::uint32_t tag = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  /// [member_count of the group] bases of [count] elements each. They stay valid until the op's
  /// done event of this shard, or until the shard is closed.
  std::array<const std::byte*, kMaxMembers> inputs{};
  std::array<std::byte*, kMaxMembers> outputs{};
};

/// When things happened to an op on this lane, and what it took.
struct OpRecord {
  TimeNs posted_at = 0;
  TimeNs first_chunk_at = 0;          ///< first chunk from the upstream rank; 0 = none came
  std::uint64_t bytes = 0;            ///< of the whole op, not of this lane's share
  std::uint64_t retransmissions = 0;  ///< of the shard while it was under way
};

}  // namespace gradwire::collective
