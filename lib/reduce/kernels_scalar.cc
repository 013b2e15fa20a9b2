// SPDX-License-Identifier: BSD-3-Clause
#define GRADWIRE_KERNEL_TARGET
#include "reduce/fold.h"
#include "reduce/scalar_ops.h"

namespace gradwire::reduce {
namespace {

template <class Ops>
constexpr std::array<FoldFunction, kRedOpCount> row() noexcept {
  return fold_row<Ops, Ops>();
}

// In the order of DataType's values.
constexpr Kernels kKernels = {
    "cpu scalar",
    {row<ScalarFloat<float>>(), row<ScalarFloat<double>>(), row<ScalarHalf>(), row<ScalarBfloat>(),
     row<ScalarInteger<std::int8_t>>(), row<ScalarInteger<std::int32_t>>(),
     row<ScalarInteger<std::int64_t>>(), row<ScalarInteger<std::uint8_t>>()},
    nullptr};

}  // namespace

const Kernels& scalar_kernels() noexcept { return kKernels; }

}  // namespace gradwire::reduce
