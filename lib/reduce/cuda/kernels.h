// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The kernels, and how they are started. The lane's thread calls these functions, except where a
/// comment says otherwise; the device must be current. Nothing here allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "reduce/gpu/format_batch.h"
#include "reduce/gpu/persistent_state.h"

namespace gradwire::reduce::cuda {

enum class Kernel : std::uint8_t {
  kSumFloat32,
  kSumFloat64,
  kSumFloat16,
  kSumBfloat16,
  kBatch,       ///< any batch
  kPersistent,  ///< takes PersistentArguments
  kFormat,      ///< takes a FormatBatch; the others take a Batch
};
inline constexpr Kernel kKernels[] = {
    Kernel::kSumFloat32, Kernel::kSumFloat64, Kernel::kSumFloat16, Kernel::kSumBfloat16,
    Kernel::kBatch,      Kernel::kPersistent, Kernel::kFormat};

/// @return the address by which CUDA's runtime knows the kernel (kernels.cu).
[[nodiscard]] const void* address_of(Kernel kernel) noexcept;

/// @return the fastest kernel that can run `batch` in one launch.
[[nodiscard]] Kernel kernel_for(const Batch& batch) noexcept;

/// Starts a kernel that runs a copy of `batch`.
[[nodiscard]] cudaError_t launch_batch(const Batch& batch, std::uint32_t blocks_max,
                                       cudaStream_t stream) noexcept;

/// Starts the kernel that runs a copy of a batch of wire formats.
[[nodiscard]] cudaError_t launch_formats(const FormatBatch& batch, std::uint32_t blocks_max,
                                         cudaStream_t stream) noexcept;

/// Clears the state and starts the kernel on as many blocks as `processors` multiprocessors hold at
/// once: blocks wait for each other.
[[nodiscard]] cudaError_t launch_persistent(const PersistentArguments& arguments,
                                            std::uint32_t processors, cudaStream_t stream) noexcept;

/// Control thread: loads the kernels, so that no launch has to.
[[nodiscard]] cudaError_t load_kernels() noexcept;

}  // namespace gradwire::reduce::cuda
