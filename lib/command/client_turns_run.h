// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A round of ClientTurns. It is compiled into the command lane's round, since a lane to which
/// nothing happens does little else. Private to lib/command.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/planted_bug.h"
#include "command/client_turns.h"
#include "command/command_lane_state.h"

namespace gradwire::command {

/// Each user gets its share of the round's steps, in turn. Who found none left is first next time.
template <class Read>
bool ClientTurns::run(Read&& read) noexcept {
  if (awake_users_.empty()) return false;
  const std::uint64_t most =
      planted(PlantedBug::kReadsEveryClient) ? UINT32_MAX : CommandLane::kCommandSteps;
  const std::uint64_t until = steps_ + most;
  const std::size_t users = awake_users_.size();
  const std::uint64_t share = std::max<std::uint64_t>(most / users, CommandLane::kCommandsPerTurn);
  bool worked = false;
  for (std::size_t left = users; left > 0 && steps_ < until; --left) {
    if (next_user_ >= awake_users_.size()) next_user_ = 0;
    if (awake_users_.empty()) break;
    User* const user = awake_users_[next_user_];
    worked |= poll_user(*user, std::min(until, steps_ + share), read);
    // Its place is the next one's if all of its clients rest now.
    if (next_user_ < awake_users_.size() && awake_users_[next_user_] == user) ++next_user_;
  }
  return worked;
}

template <class Read>
bool ClientTurns::poll_user(User& user, std::uint64_t until, Read& read) noexcept {
  bool worked = false;
  for (std::size_t left = user.awake.size(); left > 0 && steps_ < until; --left) {
    if (user.next >= user.awake.size()) user.next = 0;
    Client& client = *user.awake[user.next];
    ++steps_;
    if (read(client, until)) {
      worked = true;
      client.quiet_rounds = 0;
    } else if (++client.quiet_rounds > kQuietRounds && !client.has_held && client.done_count == 0) {
      rest(client);
      continue;
    }
    ++user.next;
  }
  return worked;
}

}  // namespace gradwire::command
