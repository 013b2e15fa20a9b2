// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Transport bare: what the driver alone gives. Two ranks, one queue of one port each; chunks go in
/// an order that both ends know, without headers, checksums, acknowledgements or retransmission,
/// out of gradient memory, and are folded out of the received mbuf. For links that neither lose nor
/// reorder (memif). It bounds what any protocol can reach over such a link, and is of no other use.
#pragma once

#include <memory>

#include "options.h"
#include "transport.h"

namespace gradwire::perf {

[[nodiscard]] std::unique_ptr<Transport> make_bare_transport(const Options& options);

}  // namespace gradwire::perf
