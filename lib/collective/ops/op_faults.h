// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Why ops end their group: two ranks called different things, or the backend failed.
#pragma once

#include "base/abort_reason.h"
#include "collective/ops/chunk.h"
#include "collective/ops/op_spec.h"
#include "collective/shard_config.h"

namespace gradwire::collective {

/// What a rank called.
struct CallOf {
  std::uint16_t rank = 0;
  OpCall call;
};

/// @param culprit  a rank; of two neighbors the upstream one.
[[nodiscard]] AbortReason mismatch_of(const ShardConfig& config, std::uint64_t op_seq,
                                      const CallOf& one, const CallOf& other,
                                      std::uint16_t culprit) noexcept;
/// The backend failed with a chunk of the op.
[[nodiscard]] AbortReason fold_failed(const ShardConfig& config, std::uint64_t op_seq) noexcept;

}  // namespace gradwire::collective
