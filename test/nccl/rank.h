// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One process of the played job: its communicators, and a watch over calls that do not return.
/// Runs in a process of its own, which the driver has forked. Allocates.
#pragma once

#include "nccl/calls.h"
#include "nccl/plan.h"

namespace gradwire::nccl {

/// @param socket   this rank's end of the socket pair with the driver.
/// @param figures  in memory that the driver shares.
/// @return the process's exit code. A failure is told to the driver, who ends the process.
int run_rank(const Options& options, int rank, int socket, Figures& figures);

}  // namespace gradwire::nccl
