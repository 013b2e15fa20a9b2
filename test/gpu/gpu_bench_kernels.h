// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Rates of the kernels alone, beside copies of the same bytes in the same run. One thread; throws
/// where CUDA fails.
#pragma once

#include <cstdint>
#include <string>

#include "base/types.h"

namespace gradwire::gpu_bench {

struct KernelRate {
  double reduce_gbytes = 0;  ///< GB/s read and written
  double copy_gbytes = 0;
};

/// Two arrays of `bytes` in GPU memory, summed into the first; beside a copy on the device.
[[nodiscard]] KernelRate device_rate(DataType type, std::uint32_t bytes);
/// `batches` full batches of packets in mapped host memory, summed with a gradient on the GPU:
/// bytes over the bus, both ways; beside pinned copies both ways.
[[nodiscard]] KernelRate mapped_rate(DataType type, std::uint32_t batches);
[[nodiscard]] std::string device_name();

}  // namespace gradwire::gpu_bench
