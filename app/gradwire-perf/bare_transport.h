// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Transport bare: measures the driver alone. Two ranks use one queue of one port each. Chunks go
/// out of gradient memory in an order that both ends know, without headers, checksums,
/// acknowledgements or retransmission, and are folded from the received mbuf. Only for links that
/// neither lose nor reorder (memif). It shows the most that any protocol can reach over such a
/// link.
#pragma once

#include <memory>

#include "options.h"
#include "transport.h"

namespace gradwire::perf {

[[nodiscard]] std::unique_ptr<Transport> make_bare_transport(const Options& options);

}  // namespace gradwire::perf
