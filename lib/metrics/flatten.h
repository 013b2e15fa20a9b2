// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The status in the form that DPDK's telemetry supports: one level of names, strings and integers.
/// Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "status/daemon_status.h"

namespace gradwire::metrics {

using FlatValue = std::variant<std::uint64_t, std::string>;
using FlatDict = std::vector<std::pair<std::string, FlatValue>>;

/// Members of objects in it are named OUTER_INNER, arrays of objects are left out, arrays of texts
/// are joined. Names keep letters, digits and underscores; any other character becomes "_".
[[nodiscard]] FlatDict flatten(const nlohmann::json& object);

/// The answer to /gradwire/NAME,PARAMETER: a list of names if there are several objects and the
/// parameter names none, else one object. kInvalid if the parameter matches no object.
struct Answer {
  bool valid = false;
  std::vector<std::string> list;
  FlatDict dict;
};
[[nodiscard]] Answer answer_status(const status::DaemonStatus& status);
/// `parameter`: nothing, an index, or a group's id.
[[nodiscard]] Answer answer_groups(const status::DaemonStatus& status,
                                   const std::string& parameter);
[[nodiscard]] Answer answer_ports(const status::DaemonStatus& status, const std::string& parameter);
[[nodiscard]] Answer answer_lanes(const status::DaemonStatus& status, const std::string& parameter);
/// A lane's counters: those of packets, and those of its groups' transport.
[[nodiscard]] Answer answer_counters(const status::DaemonStatus& status,
                                     const std::string& parameter);

}  // namespace gradwire::metrics
