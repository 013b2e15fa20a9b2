// SPDX-License-Identifier: BSD-3-Clause
// Clients that removed pages from memory that they share with the daemon: they are cut off at once,
// and their groups end.
#include <algorithm>

#include "base/abort_detail.h"
#include "command/command_lane.h"
#include "command/command_lane_state.h"
#include "ipc/bus_guard.h"

namespace gradwire::command {
namespace {

constexpr const char* kRemovedPages =
    "removed pages from the memory that it shares with the daemon";

}  // namespace

/// Each is read no more from this round on: each round that used its memory would write to pages
/// that replace it, and those count against the daemon's memory.
void CommandLane::drop_hit_clients() noexcept {
  std::uint32_t owner = 0;
  for (std::uint32_t hits = 0; hits < kHitSteps && ipc::take_hit(owner); ++hits) {
    ++steps_;
    Client* const client = clients_.find(owner);
    if (client == nullptr || client->faulty) continue;
    cut_off(*client, AbortCode::kClientDied, kRemovedPages);
    client->groups_to_abort = client->groups.size();
    dropping_.push_back(client);
  }
}

/// If groups end meanwhile, the others have other places, and some are looked at again.
void CommandLane::abort_groups_of_dropped() noexcept {
  std::uint32_t looks = 0;
  while (!dropping_.empty()) {
    Client& client = *dropping_.back();
    client.groups_to_abort = std::min(client.groups_to_abort, client.groups.size());
    for (; client.groups_to_abort > 0; ++looks, ++steps_) {
      if (looks == kHitSteps) return;
      Group& group = *client.groups[--client.groups_to_abort];
      if (group.aborted || group.ending) continue;
      const auto member = std::find(group.members.begin(), group.members.end(), &client);
      AbortReason reason;
      reason.code = AbortCode::kClientDied;
      reason.culprit_rank = reason.reporter_rank = group.rank;
      format_detail(reason, "member {} {}", member - group.members.begin(), kRemovedPages);
      abort(group, reason);
    }
    dropping_.pop_back();
  }
}

}  // namespace gradwire::command
