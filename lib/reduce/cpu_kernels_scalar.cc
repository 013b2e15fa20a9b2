// SPDX-License-Identifier: BSD-3-Clause
#define GRADWIRE_KERNEL_TARGET
#include "reduce/fold.h"
#include "reduce/scalar_ops.h"

namespace gradwire::reduce {
namespace {

constexpr Kernels kKernels = kernels_of<ScalarOps, ScalarOps>("cpu scalar", nullptr);

}  // namespace

const Kernels& scalar_kernels() noexcept { return kKernels; }

}  // namespace gradwire::reduce
