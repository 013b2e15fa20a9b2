// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The status as DPDK's telemetry can carry it: one level of names, strings and whole numbers.
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
/// are joined. Names keep letters, digits and underscores; what else is in them becomes "_".
[[nodiscard]] FlatDict flatten(const nlohmann::json& object);

/// What /gradwire/NAME,PARAMETER answers: a list of names where there are several objects and none
/// is named, else one object. kInvalid if the parameter names none.
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
