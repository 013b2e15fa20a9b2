// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/formats/format_kernels.h"

#if defined(__x86_64__)

#include "reduce/formats/avx512_format_ops.h"
#define GRADWIRE_KERNEL_TARGET __attribute__((target("avx512f")))
#include "reduce/formats/strips.h"

namespace gradwire::reduce {
namespace {

constexpr FormatKernels kKernels = format_kernels_of<Avx512FormatOps>("avx512");

}  // namespace

const FormatKernels* avx512_format_kernels() noexcept {
  // The builtin asks not only the CPU but also whether the operating system keeps its registers.
  return __builtin_cpu_supports("avx512f") ? &kKernels : nullptr;
}

}  // namespace gradwire::reduce

#else

namespace gradwire::reduce {
const FormatKernels* avx512_format_kernels() noexcept { return nullptr; }
}  // namespace gradwire::reduce

#endif
