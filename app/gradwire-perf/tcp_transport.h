// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All-reduce over the kernel's TCP: what gradwire is compared with, so written to be as fast as it
/// can be. One thread drives both directions: it sends what can go and receives what is there,
/// never blocking in either, so several chunks are always in flight. Little data is exchanged whole
/// (exchange_op.h), more goes round the ring by chunks (ring_op.h), each folded by lib/reduce while
/// it is in the cache.
#pragma once

#include <memory>

#include "transport.h"

namespace gradwire::perf {

/// `options` has to outlive it.
[[nodiscard]] std::unique_ptr<Transport> make_tcp_transport(const Options& options);

}  // namespace gradwire::perf
