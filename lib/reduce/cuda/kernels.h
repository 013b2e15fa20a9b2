// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The kernels as the host sees them. Lane thread, but for what says otherwise; the device is
/// current. Nothing here allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "reduce/gpu/batch.h"

namespace gradwire::reduce::cuda {

/// Starts a kernel that runs `batch`, which it takes a copy of.
[[nodiscard]] cudaError_t launch_batch(const Batch& batch, std::uint32_t blocks_max,
                                       cudaStream_t stream) noexcept;

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

/// Clears the state and starts the kernel on `blocks` blocks, which all have to fit the GPU at
/// once.
[[nodiscard]] cudaError_t launch_persistent(const PersistentArguments& arguments,
                                            std::uint32_t blocks, cudaStream_t stream) noexcept;

/// Control thread: loads the kernels, so that no launch does.
[[nodiscard]] cudaError_t load_kernels() noexcept;

}  // namespace gradwire::reduce::cuda
