// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Collectives through a daemon and the C interface, as any job would. One thread.
#pragma once

#include <memory>

#include "transport.h"

namespace gradwire::perf {

/// `options` has to outlive it.
[[nodiscard]] std::unique_ptr<Transport> make_daemon_transport(const Options& options);

}  // namespace gradwire::perf
