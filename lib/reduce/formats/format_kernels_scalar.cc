// SPDX-License-Identifier: BSD-3-Clause
#define GRADWIRE_KERNEL_TARGET
#include "reduce/formats/strips.h"

namespace gradwire::reduce {
namespace {

constexpr FormatKernels kKernels = format_kernels_of<ScalarFormatOps>("scalar");

}  // namespace

const FormatKernels& scalar_format_kernels() noexcept { return kKernels; }

}  // namespace gradwire::reduce
