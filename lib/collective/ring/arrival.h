// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a chunk that arrives is to this rank, by its op's claims and shape. It changes nothing.
#pragma once

#include <cstdint>

#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"

namespace gradwire::collective {

enum class Arrival : std::uint8_t { kReducing, kGathering, kDuplicate, kBad };

/// What classify() found out about a chunk.
struct Site {
  Place place;
  ChunkSpan span;
  std::uint64_t index = 0;  ///< among the chunks of this lane
};

/// @param site  set unless the chunk is bad.
[[nodiscard]] Arrival classify(const OpTable& ops, const FoldQueue& folds, const Op& op,
                               const wire::DataHeader& header, Site& site) noexcept;

}  // namespace gradwire::collective
