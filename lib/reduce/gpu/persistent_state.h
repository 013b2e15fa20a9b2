// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The arguments of a persistent kernel, and the state that its blocks share. CUDA's compiler uses
/// this header too. Nothing here allocates.
#pragma once

#include <cstdint>

#include "reduce/gpu/batch.h"

namespace gradwire::reduce::cuda {

/// A batch as block 0 passes it on: its number, the tiles, as many as matter, and the slot.
struct PersistentEntry {
  static constexpr unsigned kSlotBits = 8;
  static constexpr std::uint32_t kTilesMax = (1u << (32 - kSlotBits)) - 1;
  static_assert(kQueueSlots <= 1u << kSlotBits);
};

/// The state that the blocks of a persistent kernel share: in GPU memory, all zero at the kernel's
/// start.
struct PersistentState {
  static constexpr std::uint32_t kRing = 2 * kQueueSlots;
  std::uint32_t published;  ///< batches that block 0 has passed on
  std::uint32_t finished;
  std::uint32_t arrived[kQueueSlots];  ///< blocks that have finished the slot's batch
  unsigned long long ring[kRing];      ///< PersistentEntry of each batch, or the request to end
};

struct PersistentArguments {
  QueueWords* words = nullptr;
  const Batch* batches = nullptr;  ///< [kQueueSlots]
  PersistentState* state = nullptr;
  std::uint32_t run = 0;  ///< what it writes to words->parked when it ends
  std::uint64_t idle_ns = 0;
};

}  // namespace gradwire::reduce::cuda
