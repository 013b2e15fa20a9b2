// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The word somebody probably meant. Any thread; allocates.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace gradwire::config {

/// Levenshtein distance: single-character insertions, deletions and substitutions.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// @return the candidate with the smallest edit distance to `word`, the first of equals; empty
/// if none is nearer than half of the word's length or 2, whichever is more.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace gradwire::config
