// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/kernels.h"

#if defined(__x86_64__)

#include "reduce/avx2_ops.h"
#define GRADWIRE_KERNEL_TARGET __attribute__((target("avx2,f16c")))
#include "reduce/fold.h"

namespace gradwire::reduce {
namespace {

// In the order of DataType's values.
constexpr Kernels kKernels = {
    "cpu avx2",
    {fold_row<Avx2Float, ScalarFloat<float>>(), fold_row<Avx2Double, ScalarFloat<double>>(),
     fold_row<Avx2Half, ScalarHalf>(), fold_row<Avx2Bfloat, ScalarBfloat>(),
     fold_row<Avx2Int8, ScalarInteger<std::int8_t>>(),
     fold_row<Avx2Int32, ScalarInteger<std::int32_t>>(),
     fold_row<Avx2Int64, ScalarInteger<std::int64_t>>(),
     fold_row<Avx2Uint8, ScalarInteger<std::uint8_t>>()}};

}  // namespace

const Kernels* avx2_kernels() noexcept {
  // The builtin asks the system too (XGETBV), not the CPU alone.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) {
    return nullptr;
  }
  return &kKernels;
}

}  // namespace gradwire::reduce

#else

namespace gradwire::reduce {
const Kernels* avx2_kernels() noexcept { return nullptr; }
}  // namespace gradwire::reduce

#endif
