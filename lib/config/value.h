// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One value of one key: its type and bounds, whether it came from TOML or from a flag. Private to
/// lib/config. Control thread; allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "config/keys.h"

namespace gradwire::config {

using Value = std::variant<std::string, std::int64_t, double, bool>;

/// A flag's text as a value of the type that `key` wants, or as a string if it is none of these.
[[nodiscard]] Value value_of_flag(const Key& key, std::string_view text);

/// Checks type and bounds, and stores.
/// @return nothing, or what is wrong: what the value must be.
[[nodiscard]] std::optional<std::string> assign(const Key& key, const Field& field,
                                                const Value& value);

}  // namespace gradwire::config
