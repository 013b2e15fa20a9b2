// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/path_questions.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

namespace gradwire::control {
namespace {

/// How long a path to a rank may be silent before the group forms without it, if there is another.
constexpr TimeNs kRailWaitNs = 2'000'000'000;

/// How many of these the log names.
constexpr std::size_t kLeftNamed = 3;

// In one round, for all groups together.
constexpr std::size_t kLooksPerRound = 2'048;  ///< at addresses that wait to be asked for
constexpr std::size_t kLooksPerStep = 16;      ///< that is charged to the group's user
constexpr TimeNs kLooksPerSecond = 500'000;    ///< of a user, of which kLooksSaved at once
constexpr std::int64_t kLooksSaved = 65'536;
constexpr std::size_t kAsksPerRound = 128;
/// Open questions on a port, of all groups: each user that has any to ask gets the same share, and
/// of that each of its groups.
constexpr std::size_t kOpenQuestions = 64;
constexpr std::size_t kTriesToAsk = 64;  ///< of a group, whose first addresses may be of full ports

}  // namespace

Result<ResolveState> PathQuestions::resolve(Group& group, NeighborPath& path, Asking asking,
                                            TimeNs now) {
  work_.add(1);
  const Resolution resolution = lanes_.resolve(path.port, path.remote_ip, asking);
  path.hop = resolution.hop;
  path.asked = path.asked || resolution.asked;
  if (resolution.state == ResolveState::kFailed) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("rank {} ({}) cannot be reached on port {}: {}", path.rank,
                            wire::to_string(path.remote_ip), path.port, resolution.error));
  }
  if (resolution.state == ResolveState::kResolved) {
    path.remote_mac = resolution.mac;
    group.answered_at = now;
  } else if (!resolution.asked) {
    return ResolveState::kFailed;
  }
  return resolution.state;
}

void PathQuestions::begin(Group& group, TimeNs now) {
  group.become(GroupState::kResolving, now);
  Questions& questions = group.questions;
  questions = {};
  for (std::size_t peer = 0; peer < group.wanted.peers.size(); ++peer) {
    for (std::size_t path = 0; path < group.wanted.peers[peer].paths.size(); ++path) {
      questions.waiting.push_back(
          {static_cast<std::uint16_t>(peer), static_cast<std::uint16_t>(path)});
    }
  }
  questions.unasked = questions.waiting.size();
}

void PathQuestions::unreachable(Group& group, const Error& error, TimeNs now) {
  ends_.fail_formation(group, error, reason_here(group, AbortCode::kFormation, error.message), now);
}

void PathQuestions::look(Group& group, std::size_t looks, TimeNs now) {
  for (auto* paths : {&group.wanted.downstream, &group.wanted.upstream}) {
    for (NeighborPath& path : *paths) {
      if (path.remote_mac) continue;
      const auto state = resolve(group, path, Asking::kAtOnce, now);
      if (!state) return unreachable(group, state.error(), now);
    }
  }
  Questions& questions = group.questions;
  const auto path_at = [&](Questions::Place place) -> NeighborPath& {
    return group.wanted.peers[place.peer].paths[place.path];
  };
  std::vector<Questions::Place> open;
  for (const Questions::Place place : questions.open) {
    const auto state = resolve(group, path_at(place), Asking::kNotNow, now);
    if (!state) return unreachable(group, state.error(), now);
    if (*state == ResolveState::kPending) open.push_back(place);
    // Nobody answered: it is asked again when all others have been.
    if (*state == ResolveState::kFailed) questions.waiting.push_back(place);
  }
  bool found = false;
  for (looks = std::min(looks, questions.waiting.size()); looks > 0; --looks) {
    if (questions.looked >= questions.waiting.size()) questions.looked = 0;
    const auto at = questions.waiting.begin() + static_cast<std::ptrdiff_t>(questions.looked);
    NeighborPath& path = path_at(*at);
    const bool was_asked = path.asked;
    const auto state = resolve(group, path, Asking::kNotNow, now);
    if (!state) return unreachable(group, state.error(), now);
    if (*state == ResolveState::kFailed) {
      ++questions.looked;
      continue;
    }
    // Known from before, or asked for by another group.
    if (!was_asked) --questions.unasked;
    if (*state == ResolveState::kPending) open.push_back(*at);
    questions.waiting.erase(at);
    found = true;
  }
  questions.open = std::move(open);
  // The others may be known too.
  if (found && !questions.waiting.empty()) work_.leave_some();
}

bool PathQuestions::ask_one(Group& group, std::size_t share, TimeNs now) {
  Questions& questions = group.questions;
  const auto path_at = [&](Questions::Place place) -> NeighborPath& {
    return group.wanted.peers[place.peer].paths[place.path];
  };
  // Ports are asked on independently: one that may not ask now does not hold up the others.
  std::vector<std::uint16_t> full;
  const std::size_t tries = std::min(kTriesToAsk, questions.waiting.size());
  for (std::size_t i = 0; i < tries; ++i) {
    const Questions::Place place = questions.waiting[i];
    NeighborPath& path = path_at(place);
    work_.add(1);
    if (std::ranges::find(full, path.port) != full.end()) continue;
    const auto open = std::ranges::count_if(
        questions.open, [&](const auto& other) { return path_at(other).port == path.port; });
    const bool was_asked = path.asked;
    if (static_cast<std::size_t>(open) >= share) {
      full.push_back(path.port);
      continue;
    }
    const auto state = resolve(group, path, Asking::kInTurn, now);
    if (!state) {
      unreachable(group, state.error(), now);
      return false;
    }
    if (*state == ResolveState::kFailed) {
      full.push_back(path.port);
      continue;
    }
    if (!was_asked) --questions.unasked;
    if (*state == ResolveState::kPending) questions.open.push_back(place);
    questions.waiting.erase(questions.waiting.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < questions.looked) --questions.looked;
    questions.turn = asked_of_user_[group.uid] = ++questions_;
    return true;
  }
  return false;
}

bool PathQuestions::is_resolved(Group& group, TimeNs now) {
  const auto known = [](const NeighborPath& path) { return path.remote_mac.has_value(); };
  const bool all = group.questions.done() && std::ranges::all_of(group.wanted.downstream, known) &&
                   std::ranges::all_of(group.wanted.upstream, known);
  if (all) return true;
  // Many ranks are asked in turn: as long as some answer or were never asked, none is silent.
  const TimeNs quiet_since = std::max(group.since, group.answered_at);
  if (group.questions.unasked > 0 || now - quiet_since < kRailWaitNs) return false;
  return leave_silent_rails(group);
}

PathQuestions::Users PathQuestions::run(TimeNs now) {
  Users users;
  std::size_t count = 0;
  for (const std::uint64_t handle : groups_.forming()) {
    const Group* const group = groups_.by_handle(handle);
    if (group->state != GroupState::kResolving) continue;
    users[group->uid].push_back(handle);
    ++count;
  }
  std::erase_if(asked_of_user_, [&](const auto& entry) { return !users.contains(entry.first); });
  std::erase_if(looks_of_user_, [&](const auto& entry) { return !users.contains(entry.first); });
  if (count == 0) return users;
  const std::size_t looks = std::max<std::size_t>(kLooksPerRound / count, 1);
  // A group that cannot be formed ends in here.
  const auto resolving = [&](std::uint64_t handle) -> Group* {
    Group* group = groups_.by_handle(handle);
    return group != nullptr && group->state == GroupState::kResolving ? group : nullptr;
  };
  for (const auto& [uid, handles] : users) {
    // Other users' messages make rounds, too: looks of this one have a bound by the second.
    RateMeter& meter =
        looks_of_user_.try_emplace(uid, 1'000'000'000 / kLooksPerSecond, kLooksSaved).first->second;
    if (!meter.has(1, now)) continue;
    const std::uint64_t before = work_.steps();
    for (const std::uint64_t handle : handles) {
      if (Group* group = resolving(handle)) look(*group, looks, now);
    }
    meter.take(static_cast<std::int64_t>(work_.steps() - before), now);
    // A look takes far less than a microsecond, and a job that waits for hosts does nothing wrong.
    work_.charge(uid, (work_.steps() - before) / kLooksPerStep);
  }
  ask_in_turn(users, now);
  return users;
}

void PathQuestions::ask_in_turn(const Users& users, TimeNs now) {
  struct Asker {
    uid_t uid;
    std::vector<Group*> groups;
    std::size_t share;  ///< open questions of each of its groups on a port
  };
  std::vector<Asker> askers;
  for (const auto& [uid, handles] : users) {
    Asker asker{uid, {}, 0};
    for (const std::uint64_t handle : handles) {
      Group* group = groups_.by_handle(handle);
      if (group != nullptr && !group->questions.waiting.empty()) asker.groups.push_back(group);
    }
    if (!asker.groups.empty()) askers.push_back(std::move(asker));
  }
  for (Asker& asker : askers) {
    asker.share = std::max<std::size_t>(kOpenQuestions / askers.size() / asker.groups.size(), 1);
  }
  for (std::size_t asked = 0; asked < kAsksPerRound && !askers.empty();) {
    // Whoever asked longest ago: of users, and of that user's groups.
    const auto user = std::ranges::min_element(askers, {}, [this](const Asker& asker) {
      const auto found = asked_of_user_.find(asker.uid);
      return found == asked_of_user_.end() ? 0 : found->second;
    });
    const auto group = std::ranges::min_element(
        user->groups, {}, [](const Group* one) { return one->questions.turn; });
    work_.add(1 + (askers.size() + user->groups.size()) / 16);
    work_.charge(user->uid, 1);
    if (ask_one(**group, user->share, now)) {
      ++asked;
      continue;
    }
    user->groups.erase(group);
    if (user->groups.empty()) askers.erase(user);
  }
}

bool PathQuestions::leave_silent_rails(Group& group) {
  std::vector ways = {&group.wanted.downstream, &group.wanted.upstream};
  for (PeerPaths& peer : group.wanted.peers) ways.push_back(&peer.paths);
  const auto is_silent = [](const NeighborPath& path) { return !path.remote_mac.has_value(); };
  const auto leads_nowhere = [&](const auto* way) { return std::ranges::all_of(*way, is_silent); };
  if (std::ranges::any_of(ways, leads_nowhere)) return false;
  std::size_t left = 0;
  for (auto* paths : ways) {
    for (const NeighborPath& path : *paths) {
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
