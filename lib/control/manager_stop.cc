// SPDX-License-Identifier: BSD-3-Clause
// How the daemon stops: members have a while to leave, then all is aborted and disconnected.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <vector>

#include "control/manager.h"

namespace gradwire::control {

void Manager::begin_stop(TimeNs now) {
  if (!stopping_.running()) return;
  spdlog::info("stopping: {} groups and {} clients have {} ms to leave", groups_.size(),
               client_table_.size(), options_.limits.stop_drain_ns / 1'000'000);
  stopping_.begin_drain(now + options_.limits.stop_drain_ns);
  for (const std::uint64_t handle : groups_.handles()) {
    Group* group = groups_.by_handle(handle);
    if (group == nullptr || group->state > GroupState::kForming) continue;
    const AbortReason reason = reason_here(*group, AbortCode::kDaemonStopped, "");
    ends_.fail_formation(*group, {ErrorCode::kUnavailable, describe(reason)}, reason, now);
  }
}

void Manager::poll_stop(TimeNs now) {
  if (!stopping_.draining()) return;
  if (!stopping_.is_over(now) && groups_.size() != 0) return;
  stopping_.begin_close(now + options_.limits.stop_close_ns);
  for (const std::uint64_t handle : groups_.handles()) {
    Group* group = groups_.by_handle(handle);
    if (group == nullptr || group->state != GroupState::kFormed) continue;
    ends_.abort(*group, reason_here(*group, AbortCode::kDaemonStopped, ""), GroupEnds::kNoLane,
                now);
    ends_.begin_close(*group, now);
  }
  std::vector<Client*> clients;
  for (const auto& [id, client] : client_table_.all()) clients.push_back(client.get());
  for (Client* client : clients)
    clients_.cut_off(*client, "is disconnected because the daemon stops", now);
}

bool Manager::stopped(TimeNs now) const noexcept {
  if (!stopping_.closing()) return false;
  return (client_table_.size() == 0 && groups_.size() == 0) || stopping_.is_over(now);
}

std::string Manager::leftovers() const {
  std::string text;
  for (const auto& [handle, group] : groups_.all()) {
    text += fmt::format("{}group {:016x} epoch {} is {} (closed on {} of {} lanes)",
                        text.empty() ? "" : "; ", group->key.group_id, group->key.epoch,
                        name_of(group->state), group->lanes_closed.count(), group->wanted.lanes);
  }
  for (const auto& [id, client] : client_table_.all()) {
    text += fmt::format("{}client {} (pid {}) has {} memory regions", text.empty() ? "" : "; ", id,
                        client->peer.pid, client->memories.size());
  }
  return text;
}

}  // namespace gradwire::control
