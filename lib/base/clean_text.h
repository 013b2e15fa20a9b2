// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Texts of others, which go to logs, terminals and JSON. Any thread; nothing allocates.
#pragma once

#include <span>

namespace gradwire {

/// Control characters and what is not UTF-8 (a sequence that is cut at the end, too) become '?',
/// and everything behind a NUL becomes zero.
void clean_text(std::span<char> text) noexcept;

}  // namespace gradwire
