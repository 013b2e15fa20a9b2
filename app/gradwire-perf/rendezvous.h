// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Finding the other ranks through files of a directory that all see, in the layout of the Python
/// package's rendezvous.DirectoryStore. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/gradwire.h"
#include "options.h"

namespace gradwire::perf {

struct Meeting {
  std::uint64_t group_id = 0;
  std::vector<std::byte> rank_infos;  ///< [nranks] x GW_RANK_INFO_BYTES
};

/// Writes `own_info`, GW_RANK_INFO_BYTES of this daemon, and waits for the other ranks'.
/// @return kTimedOut naming the file that did not come.
[[nodiscard]] Result<Meeting> meet(const Options& options, const std::byte* own_info);

/// Removes what this process wrote: for when all have met.
void leave_no_trace(const Options& options) noexcept;

}  // namespace gradwire::perf
