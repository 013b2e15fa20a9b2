// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The status as Prometheus metrics: names, units and help follow Prometheus' rules (base units,
/// counters end in _total). Pure; any thread; allocates.
#pragma once

#include <prometheus/metric_family.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace gradwire::operate {

/// What the status lacks is left out.
[[nodiscard]] std::vector<prometheus::MetricFamily> metrics_of(const nlohmann::json& status);

}  // namespace gradwire::operate
