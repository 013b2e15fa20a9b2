// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a persistent kernel is started with, and by which its blocks tell each other. CUDA's
/// compiler takes this header too. Nothing here allocates.
#pragma once

#include <cstdint>

#include "reduce/gpu/batch.h"

namespace gradwire::reduce::cuda {

/// By which the blocks of a persistent kernel tell each other: GPU memory, all zero at its start.
struct PersistentState {
  static constexpr std::uint32_t kRing = 2 * kQueueSlots;
  std::uint32_t published;  ///< batches that block 0 has passed on
  std::uint32_t finished;
  std::uint32_t arrived[kQueueSlots];  ///< blocks that are through with the slot's batch
  unsigned long long ring[kRing];      ///< number and slot of each batch, or the order to end
};

struct PersistentArguments {
  QueueWords* words = nullptr;
  const Batch* batches = nullptr;  ///< [kQueueSlots]
  PersistentState* state = nullptr;
  std::uint32_t run = 0;  ///< what it says in words->parked when it ends
  std::uint64_t idle_ns = 0;
};

}  // namespace gradwire::reduce::cuda
