// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Transport gradwire: lanes in this very process, lane 0 driven by the thread that reduces. No
/// daemon, no client library. The EAL is started by open(), once per process.
#pragma once

#include <memory>

#include "options.h"
#include "transport.h"

namespace gradwire::perf {

[[nodiscard]] std::unique_ptr<Transport> make_embedded_transport(const Options& options);

}  // namespace gradwire::perf
