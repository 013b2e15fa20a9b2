// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All-reduce over RDMA: what gradwire would have to be compared with on NICs that can do both. The
/// ops are those of transport tcp (exchange_op.h, ring_op.h); each piece is one RDMA write with
/// immediate over a reliable-connected queue pair, put where it belongs without a copy
/// (rdma_mover.h).
#pragma once

#include <memory>

#include "transport.h"

namespace gradwire::perf {

/// `options` must outlive it.
[[nodiscard]] std::unique_ptr<Transport> make_rdma_transport(const Options& options);

}  // namespace gradwire::perf
