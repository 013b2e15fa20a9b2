// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Finding the other ranks: through files of a directory that all see, in the layout of the Python
/// package's rendezvous.DirectoryStore, or through rank 0 at tcp://HOST:PORT. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "options.h"

namespace gradwire::perf {

struct Meeting {
  std::uint64_t group_id = 0;
  std::vector<std::byte> rank_infos;  ///< [ranks, those that only sum too] x the bytes of one
};

/// Publishes `own_info`, by which others reach this rank, and waits for those of the other ranks,
/// which have the same size.
/// @return kTimedOut, naming those who did not come; kUnavailable, with what another one said that
///         met all and could not go on. After an error nothing is left of this rank.
[[nodiscard]] Result<Meeting> meet(const Options& options, std::span<const std::byte> own_info);

/// Removes what this process wrote; call it when all have met.
void leave_no_trace(const Options& options) noexcept;
/// The same, and if this rank could not join it tells those who still wait for its file why.
void leave(const Options& options, const Result<void>& joined);

}  // namespace gradwire::perf
