// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All-reduce over the kernel's TCP: gradwire is compared with it, so it is written to be as fast
/// as possible. One thread drives both directions without blocking in either, so several chunks are
/// always in flight. Small inputs are exchanged whole (exchange_op.h), larger ones go round the
/// ring in chunks (ring_op.h); lib/reduce folds each while it is in the cache.
#pragma once

#include <memory>

#include "transport.h"

namespace gradwire::perf {

/// `options` must outlive it.
[[nodiscard]] std::unique_ptr<Transport> make_tcp_transport(const Options& options);

}  // namespace gradwire::perf
