// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Writes the detail of an abort's reason from a format and its values. Any thread; it allocates
/// nothing, and cuts off what is too long.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "base/abort_reason.h"

namespace gradwire {

template <class... Args>
void format_detail(AbortReason& reason, fmt::format_string<Args...> text, Args&&... args) noexcept {
  *fmt::format_to_n(reason.detail, AbortReason::kDetailBytes - 1, text, std::forward<Args>(args)...)
       .out = '\0';
}

}  // namespace gradwire
