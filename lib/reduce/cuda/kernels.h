// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The kernels as the host sees them. Lane thread, but for what says otherwise; the device is
/// current. Nothing here allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "reduce/gpu/persistent_state.h"

namespace gradwire::reduce::cuda {

/// Starts a kernel that runs `batch`, which it takes a copy of.
[[nodiscard]] cudaError_t launch_batch(const Batch& batch, std::uint32_t blocks_max,
                                       cudaStream_t stream) noexcept;

/// Clears the state and starts the kernel on `blocks` blocks, which all have to fit the GPU at
/// once.
[[nodiscard]] cudaError_t launch_persistent(const PersistentArguments& arguments,
                                            std::uint32_t blocks, cudaStream_t stream) noexcept;

/// Control thread: loads the kernels, so that no launch does.
[[nodiscard]] cudaError_t load_kernels() noexcept;

}  // namespace gradwire::reduce::cuda
