// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The CPU backend's kernels, one table per instruction set. A kernel folds any number of sources
/// into one value per element and stores it to any number of targets, in one pass over memory.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace gradwire::reduce {

/// A fold in element order: target[t][i] = round(source[0][i] op source[1][i] op ... / divisor).
/// A target may be one of the sources, from the same first element on; otherwise nothing overlaps.
struct Fold {
  const std::byte* const* sources = nullptr;  ///< [source_count] arrays of [count] elements
  std::byte* const* targets = nullptr;        ///< [target_count], likewise
  std::size_t source_count = 0;               ///< from 1
  std::size_t target_count = 0;               ///< from 1
  std::size_t count = 0;
  std::uint32_t divisor = 1;  ///< 1 = no division; [1, kMaxProcesses]
  bool wide = false;          ///< sources (of a fold in order) or targets (of others) of 16-bit
                              ///< datatypes are in fp32; then no target is a source
  bool in_order = false;      ///< rounded after each source
  const double* factors = nullptr;  ///< [factor_count] of a premul-sum: of the first sources
  std::size_t factor_count = 0;
};

using FoldFunction = void (*)(const Fold&) noexcept;
/// By datatype and redop. avg uses the functions of sum; `divisor` makes the division.
using FoldTable = std::array<std::array<FoldFunction, kRedOpCount>, kDataTypeCount>;
/// See base/streaming_copy.h.
using CopyFunction = void (*)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

struct Kernels {
  const char* name;  ///< "cpu scalar"
  FoldTable fold;
  FoldTable fold_wide;          ///< targets of 16-bit datatypes in fp32, not rounded
  FoldTable fold_in_order;      ///< rounded after each source
  CopyFunction streaming_copy;  ///< nullptr: use memcpy
};

[[nodiscard]] const Kernels& scalar_kernels() noexcept;
/// @return nullptr if this CPU or the operating system does not support AVX2 and F16C.
[[nodiscard]] const Kernels* avx2_kernels() noexcept;

}  // namespace gradwire::reduce
