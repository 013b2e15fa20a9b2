// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Transport gradwire: lanes in this process, and the calling thread drives lane 0. It needs no
/// daemon and no client library. open() starts the EAL, once per process.
#pragma once

#include <memory>

#include "options.h"
#include "transport.h"

namespace gradwire::perf {

[[nodiscard]] std::unique_ptr<Transport> make_embedded_transport(const Options& options);

}  // namespace gradwire::perf
