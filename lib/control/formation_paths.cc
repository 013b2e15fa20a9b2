// SPDX-License-Identifier: BSD-3-Clause
// Forming: by which paths a group's packets will go, and which of them answer.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "control/manager.h"

namespace gradwire::control {
namespace {

/// How long a path to a rank may be silent before the group forms without it, if there is another.
constexpr TimeNs kRailWaitNs = 2'000'000'000;

/// How many of these the log names.
constexpr std::size_t kLeftNamed = 3;

}  // namespace

void Manager::count_idle_networks(Group& group) const {
  if (group.nranks() == 1) return;
  const std::span<const NeighbourPath> paths = group.wanted.downstream;
  const std::size_t used = paths_used(paths, group.wanted.lanes);
  group.idle_networks = paths.size() - used;
  if (group.idle_networks == 0) return;
  spdlog::warn(
      "{}: {} networks lead to rank {}, but {} lanes use only {} of them, unless "
      "one fails: set lanes.count to {} or more",
      key_text(group.key), paths.size(), group.downstream_rank(), group.wanted.lanes, used,
      lanes_for_all(paths));
}

std::string Manager::short_receive_ring(const Group& group) const {
  if (group.wanted.direct_bytes == 0) return {};
  const std::uint32_t ranks = group.all_ranks();
  const std::uint32_t wanted = ranks + ranks / 16;  // acknowledgements, besides
  for (const LocalAddress& address : lanes_.addresses()) {
    const std::uint32_t places = address.rx_descriptors;
    if (places == 0 || places >= wanted || address.single_peer) continue;
    return fmt::format(
        "small ops of {} may bring a packet of each of its {} ranks at once, and a receive ring of "
        "the port at {} has {} places: those that find none are lost and sent again, which takes "
        "milliseconds. Set port.rx_descriptors to {}",
        key_text(group.key), ranks, wire::to_string(address.ip), places, std::bit_ceil(wanted));
  }
  return {};
}

Result<bool> Manager::resolve_paths(std::span<NeighbourPath> paths, Asking asking, bool& answered) {
  bool all = true;
  for (NeighbourPath& path : paths) {
    if (path.remote_mac) continue;
    const Resolution resolution = lanes_.resolve(path.port, path.remote_ip, asking);
    path.hop = resolution.hop;
    switch (resolution.state) {
      case ResolveState::kPending:
        all = false;
        break;
      case ResolveState::kResolved:
        path.remote_mac = resolution.mac;
        answered = true;
        break;
      case ResolveState::kFailed:
        return fail(ErrorCode::kUnavailable,
                    fmt::format("rank {} ({}) cannot be reached on port {}: {}", path.rank,
                                wire::to_string(path.remote_ip), path.port, resolution.error));
    }
  }
  return all;
}

void Manager::resolve(Group& group, TimeNs now) {
  if (group.state != GroupState::kResolving) return;
  bool all = true;
  bool answered = false;
  for (std::vector<NeighbourPath>* paths : {&group.wanted.downstream, &group.wanted.upstream}) {
    const auto done = resolve_paths(*paths, Asking::kAtOnce, answered);
    if (!done) return unreachable(group, done.error(), now);
    all &= *done;
  }
  for (PeerPaths& peer : group.wanted.peers) {
    const auto done = resolve_paths(peer.paths, Asking::kInTurn, answered);
    if (!done) return unreachable(group, done.error(), now);
    all &= *done;
  }
  if (answered) group.answered_at = now;
  // Many ranks are asked in turn: as long as some answer, others may not have been asked yet.
  const TimeNs quiet_since = std::max(group.since, group.answered_at);
  if (!all && now - quiet_since >= kRailWaitNs) all = leave_silent_rails(group);
  if (all) start_lanes(group, now);
}

bool Manager::leave_silent_rails(Group& group) {
  std::vector ways = {&group.wanted.downstream, &group.wanted.upstream};
  for (PeerPaths& peer : group.wanted.peers) ways.push_back(&peer.paths);
  const auto is_silent = [](const NeighbourPath& path) { return !path.remote_mac.has_value(); };
  const auto leads_nowhere = [&](const auto* way) { return std::ranges::all_of(*way, is_silent); };
  if (std::ranges::any_of(ways, leads_nowhere)) return false;
  std::size_t left = 0;
  for (auto* paths : ways) {
    for (const NeighbourPath& path : *paths) {
      if (!is_silent(path) || left++ >= kLeftNamed) continue;
      spdlog::warn("{}: {}; the group forms without that path", key_text(group.key),
                   unanswered_text(path, "of several paths, that to"));
    }
    std::erase_if(*paths, is_silent);
  }
  if (left > kLeftNamed) {
    spdlog::warn("{}: and without {} further paths that do not answer", key_text(group.key),
                 left - kLeftNamed);
  }
  return true;
}

}  // namespace gradwire::control
