// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Starts the kernels. The lane's thread calls these functions, except where a comment says
/// otherwise; the device must be current. Nothing here allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "reduce/gpu/persistent_state.h"

namespace gradwire::reduce::cuda {

/// Starts a kernel that runs a copy of `batch`.
[[nodiscard]] cudaError_t launch_batch(const Batch& batch, std::uint32_t blocks_max,
                                       cudaStream_t stream) noexcept;

/// Clears the state and starts the kernel on as many blocks as `processors` multiprocessors hold at
/// once: blocks wait for each other.
[[nodiscard]] cudaError_t launch_persistent(const PersistentArguments& arguments,
                                            std::uint32_t processors, cudaStream_t stream) noexcept;

/// Control thread: loads the kernels, so that no launch has to.
[[nodiscard]] cudaError_t load_kernels() noexcept;

}  // namespace gradwire::reduce::cuda
