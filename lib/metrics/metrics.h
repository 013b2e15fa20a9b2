// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The status as Prometheus metrics: names, units and help follow Prometheus' rules (base units,
/// counters end in _total). Pure; any thread; allocates.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "status/daemon_status.h"

namespace gradwire::metrics {

[[nodiscard]] std::vector<prometheus::MetricFamily> metrics_of(const status::DaemonStatus& status);

}  // namespace gradwire::metrics
