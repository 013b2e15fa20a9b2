// SPDX-License-Identifier: BSD-3-Clause
#include "base/streaming_copy.h"
#include "reduce/cpu_kernels.h"

#if defined(__x86_64__)

#include <cpuid.h>

#include "reduce/avx2_ops.h"
#define GRADWIRE_KERNEL_TARGET __attribute__((target("avx2,f16c")))
#include "reduce/fold.h"

namespace gradwire::reduce {
namespace {

constexpr Kernels kKernels = kernels_of<Avx2Ops, ScalarOps>("cpu avx2", &streaming_copy_avx);

}  // namespace

const Kernels* avx2_kernels() noexcept {
  // For AVX2 the builtin checks not only the CPU but also the operating system (XGETBV), which F16C
  // needs too. Clang's builtin does not know "f16c", hence the CPUID below.
  if (!__builtin_cpu_supports("avx2")) {
    return nullptr;
  }
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return has_f16c ? &kKernels : nullptr;
}

}  // namespace gradwire::reduce

#else

namespace gradwire::reduce {
const Kernels* avx2_kernels() noexcept { return nullptr; }
}  // namespace gradwire::reduce

#endif
