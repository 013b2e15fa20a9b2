// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What codec.cc calls once lengths are checked: one table for each instruction set. The
/// floating-point control is the default. Private to lib/reduce. Any thread; nothing allocates.
#pragma once

#include <array>
#include <cstddef>

#include "reduce/formats/codec.h"

namespace gradwire::reduce {

/// Of one format.
struct FormatFunctions {
  void (*part)(const FormatPart& part, std::size_t count) noexcept;
  void (*result)(const FormatResult& result) noexcept;
  void (*decode)(DataType type, const std::byte* wire, std::byte* values,
                 std::size_t count) noexcept;
  void (*add)(const std::byte* wire, std::byte* sum, std::size_t count) noexcept;
};

struct FormatKernels {
  const char* name;
  std::array<FormatFunctions, kWireFormats.size()> of;  ///< of `same`: nothing
};

[[nodiscard]] const FormatKernels& scalar_format_kernels() noexcept;
/// @return nullptr if this CPU or the operating system does not support it.
[[nodiscard]] const FormatKernels* avx2_format_kernels() noexcept;
[[nodiscard]] const FormatKernels* avx512_format_kernels() noexcept;

}  // namespace gradwire::reduce
