// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The PTX that ptx.py has unpacked. For tests alone: allocates, and throws std::runtime_error.
#pragma once

#include <array>
#include <string>

namespace gradwire::ptx {

/// sm_80's text is sm_90's.
inline constexpr std::array kArchitectures = {"sm_90", "sm_100"};

/// @return the kernels' text, from the folder that GRADWIRE_PTX names.
[[nodiscard]] std::string text_of(const std::string& architecture);

}  // namespace gradwire::ptx
