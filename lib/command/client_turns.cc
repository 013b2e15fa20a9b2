// SPDX-License-Identifier: BSD-3-Clause
#include "command/client_turns.h"

#include <algorithm>
#include <utility>

#include "command/command_lane_state.h"

namespace gradwire::command {

ClientTurns::ClientTurns(std::uint64_t& steps) : steps_(steps) {}

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

}  // namespace gradwire::command
