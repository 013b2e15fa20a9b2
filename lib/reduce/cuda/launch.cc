// SPDX-License-Identifier: BSD-3-Clause
// The host's part of the kernels. It is no CUDA source, so that the tests compile it without nvcc.
#include <algorithm>

#include "reduce/cuda/kernels.h"

namespace gradwire::reduce::cuda {
namespace {

/// As many blocks as so many multiprocessors hold: as many loads as possible have to be on the bus
/// at once.
std::uint32_t persistent_blocks(std::uint32_t processors) noexcept {
  int each = 0;
  const cudaError_t asked = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &each, address_of(Kernel::kPersistent), static_cast<int>(kThreadsPerBlock), 0);
  return asked == cudaSuccess && each > 0 ? processors * static_cast<std::uint32_t>(each)
                                          : processors;
}

}  // namespace

Kernel kernel_for(const Batch& batch) noexcept {
  if (batch.uniform == 0 || batch.redop != RedOp::kSum) return Kernel::kBatch;
  switch (batch.datatype) {
    case DataType::kFloat32:
      return Kernel::kSumFloat32;
    case DataType::kFloat64:
      return Kernel::kSumFloat64;
    case DataType::kFloat16:
      return Kernel::kSumFloat16;
    case DataType::kBfloat16:
      return Kernel::kSumBfloat16;
    default:
      return Kernel::kBatch;
  }
}

cudaError_t launch_batch(const Batch& batch, std::uint32_t blocks_max,
                         cudaStream_t stream) noexcept {
  const std::uint32_t blocks = std::min(batch.tile_count, blocks_max);
  if (blocks == 0) return cudaSuccess;
  void* arguments[] = {const_cast<Batch*>(&batch)};
  return cudaLaunchKernel(address_of(kernel_for(batch)), dim3(blocks), dim3(kThreadsPerBlock),
                          arguments, 0, stream);
}

cudaError_t launch_formats(const FormatBatch& batch, std::uint32_t blocks_max,
                           cudaStream_t stream) noexcept {
  const std::uint32_t blocks = std::min(batch.tile_count, blocks_max);
  if (blocks == 0) return cudaSuccess;
  void* arguments[] = {const_cast<FormatBatch*>(&batch)};
  return cudaLaunchKernel(address_of(Kernel::kFormat), dim3(blocks), dim3(kThreadsPerBlock),
                          arguments, 0, stream);
}

cudaError_t launch_persistent(const PersistentArguments& arguments, std::uint32_t processors,
                              cudaStream_t stream) noexcept {
  const cudaError_t cleared = cudaMemsetAsync(arguments.state, 0, sizeof *arguments.state, stream);
  if (cleared != cudaSuccess) return cleared;
  PersistentArguments copy = arguments;
  void* pointers[] = {&copy};
  // Cooperative, so that CUDA refuses the launch if the blocks do not fit on the GPU at once: they
  // wait for each other.
  return cudaLaunchCooperativeKernel(address_of(Kernel::kPersistent),
                                     dim3(persistent_blocks(processors)), dim3(kThreadsPerBlock),
                                     pointers, 0, stream);
}

cudaError_t load_kernels() noexcept {
  for (const Kernel kernel : kKernels) {
    cudaFuncAttributes attributes{};
    const cudaError_t result = cudaFuncGetAttributes(&attributes, address_of(kernel));
    if (result != cudaSuccess) return result;
  }
  return cudaSuccess;
}

}  // namespace gradwire::reduce::cuda
