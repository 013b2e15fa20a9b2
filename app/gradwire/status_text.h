// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The daemon's status for people: what waits for whom first, then the rest. Pure; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gradwire::cli {

/// Lines of text. What a newer daemon adds is left out, what an older one lacks shows as "?".
[[nodiscard]] std::string status_text(const nlohmann::json& status);

}  // namespace gradwire::cli
