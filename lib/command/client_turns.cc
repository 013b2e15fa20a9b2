// SPDX-License-Identifier: BSD-3-Clause
#include "command/client_turns.h"

#include <algorithm>
#include <utility>

#include "base/planted_bug.h"
#include "command/command_lane_state.h"

namespace gradwire::command {

ClientTurns::ClientTurns(ClientReader& reader, std::uint64_t& steps)
    : reader_(reader), steps_(steps) {}

ClientTurns::~ClientTurns() = default;

Client* ClientTurns::find(std::uint32_t client_id) const noexcept {
  const auto found = index_.find(client_id);
  return found == index_.end() ? nullptr : found->second;
}

void ClientTurns::add(std::unique_ptr<Client> client) {
  const auto user = std::find_if(users_.begin(), users_.end(),
                                 [&](const auto& each) { return each->id == client->port->user; });
  if (user == users_.end()) {
    users_.push_back(std::make_unique<User>());
    users_.back()->id = client->port->user;
    awake_users_.reserve(users_.size());
    client->user = users_.back().get();
  } else {
    client->user = user->get();
  }
  client->user->awake.reserve(++client->user->clients);
  index_[client->port->client_id] = client.get();
  clients_.push_back(std::move(client));
  wake(*clients_.back());
}

void ClientTurns::remove(Client& client) noexcept {
  rest(client);
  index_.erase(client.port->client_id);
  User* const user = client.user;
  std::erase_if(clients_, [&](const auto& each) { return each.get() == &client; });
  if (--user->clients == 0) {
    std::erase_if(users_, [&](const auto& each) { return each.get() == user; });
  }
}

bool ClientTurns::may_command(const Client& client) noexcept {
  return client.removal == nullptr && !client.faulty && client.free_count != 0 &&
         client.port->queue.has_command();
}

void ClientTurns::wake(Client& client) noexcept {
  client.quiet_rounds = 0;
  if (client.awake) return;
  client.awake = true;
  ++awake_;
  User& user = *client.user;
  if (user.awake.empty()) awake_users_.push_back(&user);
  const auto place = std::lower_bound(
      user.awake.begin(), user.awake.end(), client.port->client_id,
      [](const Client* other, std::uint32_t id) noexcept { return other->port->client_id < id; });
  user.awake.insert(place, &client);
}

void ClientTurns::rest(Client& client) noexcept {
  if (!client.awake) return;
  client.awake = false;
  --awake_;
  User& user = *client.user;
  std::erase(user.awake, &client);
  if (user.awake.empty()) std::erase(awake_users_, &user);
}

void ClientTurns::look_at_next() noexcept {
  if (clients_.empty()) return;
  if (++next_look_ >= clients_.size()) next_look_ = 0;
  Client& client = *clients_[next_look_];
  if (!client.awake && may_command(client)) wake(client);
}

bool ClientTurns::wake_all_with_commands() noexcept {
  if (awake_ == clients_.size()) return false;
  bool found = false;
  for (auto& client : clients_) {
    if (client->awake || !may_command(*client)) continue;
    wake(*client);
    found = true;
  }
  return found;
}

/// Each user gets its share of the round's steps, in turn. Who found none left is first next time.
bool ClientTurns::run() noexcept {
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
    worked |= poll_user(*user, std::min(until, steps_ + share));
    // Its place is the next one's if all of its clients rest now.
    if (next_user_ < awake_users_.size() && awake_users_[next_user_] == user) ++next_user_;
  }
  return worked;
}

bool ClientTurns::poll_user(User& user, std::uint64_t until) noexcept {
  bool worked = false;
  for (std::size_t left = user.awake.size(); left > 0 && steps_ < until; --left) {
    if (user.next >= user.awake.size()) user.next = 0;
    Client& client = *user.awake[user.next];
    ++steps_;
    if (reader_.poll_client(client, until)) {
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
