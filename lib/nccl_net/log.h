// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the plug-in has to say goes to NCCL's logger, with NCCL's line of host, process and rank.
/// Any thread; nothing here allocates.
#pragma once

#include "nccl_net/abi.h"

namespace gradwire::nccl_net {

/// Until it is set nothing is logged. NCCL gives the same function to each communicator.
void set_logger(Logger logger);
/// Shown by NCCL_DEBUG=WARN and above: why something was refused or has failed.
[[gnu::format(printf, 1, 2)]] void warn(const char* format, ...);
/// Shown by NCCL_DEBUG=INFO.
[[gnu::format(printf, 1, 2)]] void inform(const char* format, ...);

}  // namespace gradwire::nccl_net
