// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the kernels' loops are made of: vectors, loads, addresses, combinations.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "reduce/scalar_ops.h"

/// What is indexed in a loop stays in registers only where the loop is gone.
#if defined(__CUDACC__)
#define GRADWIRE_FLATTEN _Pragma("unroll")
#elif defined(__clang__)
#define GRADWIRE_FLATTEN _Pragma("clang loop unroll(full)")
#else
#define GRADWIRE_FLATTEN _Pragma("GCC unroll 16")
#endif

/// A function of its own on a GPU, so that it neither adds to others' registers nor is compiled
/// again for each.
#if defined(__CUDACC__)
#define GRADWIRE_APART __noinline__
#else
#define GRADWIRE_APART
#endif

namespace gradwire::reduce {

struct alignas(16) Vector16 {
  std::uint32_t word[4];
};

/// How kernels load, and the host: what a persistent kernel has acquired is not stale in a cache
/// (kernels.cu).
struct PlainLoad {
  template <class T>
  GRADWIRE_ANYWHERE static T load(const T* from) noexcept {
    return *from;
  }
};

template <class Ops, RedOp kOp>
GRADWIRE_ANYWHERE inline typename Ops::Acc combine_as(typename Ops::Acc a,
                                                      typename Ops::Acc b) noexcept {
  if constexpr (kOp == RedOp::kMin) {
    return Ops::min(a, b);
  } else if constexpr (kOp == RedOp::kMax) {
    return Ops::max(a, b);
  } else if constexpr (kOp == RedOp::kProd) {
    return Ops::prod(a, b);
  } else if constexpr (kOp == RedOp::kBand) {
    return Ops::band(a, b);
  } else if constexpr (kOp == RedOp::kBor) {
    return Ops::bor(a, b);
  } else if constexpr (kOp == RedOp::kBxor) {
    return Ops::bxor(a, b);
  } else {
    return Ops::sum(a, b);
  }
}

template <class T>
GRADWIRE_ANYWHERE inline T* at_address(std::uint64_t address) noexcept {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

/// The item that holds `tile` of the batch.
template <class AnyBatch>
GRADWIRE_ANYWHERE inline std::uint32_t item_of_tile(const AnyBatch& batch,
                                                    std::uint32_t tile) noexcept {
  std::uint32_t low = 0;
  std::uint32_t high = batch.item_count;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    if (batch.items[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace gradwire::reduce
