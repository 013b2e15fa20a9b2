// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Collectives through a daemon and the C interface, like any job. One thread.
#pragma once

#include <memory>

#include "transport.h"

namespace gradwire::perf {

/// `options` must outlive it.
[[nodiscard]] std::unique_ptr<Transport> make_daemon_transport(const Options& options);

}  // namespace gradwire::perf
