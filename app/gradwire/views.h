// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the verbs show of the daemon's status: the part that --json prints, and its text. What a
/// newer daemon adds is left out, what an older one lacks shows as "?". Pure; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gradwire::cli {

[[nodiscard]] nlohmann::json groups_of(const nlohmann::json& status);
[[nodiscard]] std::string groups_text(const nlohmann::json& groups);
/// Every counter under a name with dots.
[[nodiscard]] nlohmann::json counters_of(const nlohmann::json& status);
[[nodiscard]] std::string counters_text(const nlohmann::json& counters);

}  // namespace gradwire::cli
