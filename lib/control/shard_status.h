// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Shards' and lanes' numbers for the status, and what an unfinished op waits for. Private to
/// lib/control; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collective/shard.h"
#include "control/formation/paths.h"
#include "control/state.h"
#include "lane/counters.h"
#include "status/daemon_status.h"

namespace gradwire::control {

[[nodiscard]] constexpr double seconds(TimeNs ns) { return static_cast<double>(ns) / 1e9; }

/// Whether a user may see what identifies a group of `owner` on the wire: its own user, root and
/// the daemon's user may.
[[nodiscard]] bool may_see(uid_t viewer, uid_t owner) noexcept;

/// @param downstream  paths to the downstream rank, as path_of() takes them
[[nodiscard]] status::Shard shard_status(std::uint8_t lane, const collective::ShardStatus& shard,
                                         std::span<const NeighborPath> downstream, TimeNs now);
[[nodiscard]] status::Transport transport_status(const collective::ShardCounters& counters);
/// Each value is the last one that the lane wrote.
[[nodiscard]] status::LaneCounters lane_counters_status(const lane::LaneCounters& counters);

/// The oldest unfinished op of a formed group on one lane, and which rank it waits for.
struct OpWait {
  std::uint64_t op_seq = 0;   ///< 0 = there is none
  const char* neighbor = "";  ///< "upstream", "downstream", "rank" or "ranks"; or "" if it waits
                              ///< for this rank itself
  std::uint16_t rank = 0;     ///< which one; the first of several ranks of which one is late
  TimeNs since = 0;
  bool is_late = false;  ///< that rank is: its clients have not posted the op, or it is silent
  std::string text;      ///< one line: for whom it waits, and for what
};
[[nodiscard]] OpWait op_wait(const Group& group, std::uint8_t lane,
                             const collective::ShardStatus& shard, TimeNs now);
/// The oldest unfinished transfer of a formed group on one lane, as `gradwire ops` shows it beside
/// ops: its number is that of its pair of processes.
/// Nothing if there is none.
[[nodiscard]] std::optional<status::Op> transfer_status(const Group& group, std::uint8_t lane,
                                                        const collective::ShardStatus& shard,
                                                        TimeNs now);
[[nodiscard]] status::Op op_status(const Group& group, std::uint8_t lane, const OpWait& wait,
                                   const collective::ShardStatus& shard, TimeNs now);

}  // namespace gradwire::control
