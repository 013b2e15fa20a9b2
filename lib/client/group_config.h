// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a client joins a group by. Plain data; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/process_layout.h"
#include "base/result.h"
#include "base/types.h"
#include "ipc/control_messages.h"

namespace gradwire::client {

struct GroupConfig {
  GroupKey key;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 0;
  std::uint16_t folding_ranks = 0;  ///< so many of the last ranks have no members
  std::uint16_t member = 0;
  std::uint16_t member_count = 1;               ///< of this rank; if it has none, of rank 0
  std::shared_ptr<const ProcessLayout> layout;  ///< nullptr: every rank has as many members
  bool transfers_alone = false;                 ///< it has sends and receives, and no ops
  std::chrono::milliseconds timeout{30000};
  std::span<const ipc::RankInfo> rank_infos;  ///< valid during join() only

  [[nodiscard]] std::uint16_t ring_ranks() const noexcept {
    return static_cast<std::uint16_t>(nranks - folding_ranks);
  }
  [[nodiscard]] bool folds_only() const noexcept { return rank >= ring_ranks(); }
  [[nodiscard]] GroupProcesses processes() const noexcept {
    return {ring_ranks(), member_count, layout.get()};
  }
  /// Of a rank that has any.
  [[nodiscard]] std::uint32_t process() const noexcept {
    return processes().process_of(rank, member);
  }
};
/// What a group follows from whose processes are given each with its daemon.
/// @param infos    [processes]: of the daemon of each. A daemon's rank is its place among the
///                 daemons, in the order in which processes name them.
/// @param folding  of the daemons without members, whose ranks come after those.
/// @param process  of this client; one that joins at the i-th of `folding` is `processes` + i.
/// @param table    gets the ranks' entries; `rank_infos` of the result points there.
[[nodiscard]] Result<GroupConfig> config_of_processes(std::span<const ipc::RankInfo> infos,
                                                      std::span<const ipc::RankInfo> folding,
                                                      std::uint32_t process,
                                                      std::vector<ipc::RankInfo>& table);

}  // namespace gradwire::client
