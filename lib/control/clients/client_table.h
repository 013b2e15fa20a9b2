// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The clients of a daemon, by id and by connection. One that has retired is kept, without its
/// connection, until nothing refers to its memory. The control thread owns it; it allocates.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "control/state.h"
#include "ipc/message_sink.h"

namespace gradwire::control {

class ClientTable {
 public:
  using Clients = std::map<std::uint32_t, std::unique_ptr<Client>>;

  /// By id.
  [[nodiscard]] const Clients& all() const noexcept { return clients_; }
  [[nodiscard]] std::size_t size() const noexcept { return clients_.size(); }
  [[nodiscard]] std::uint32_t of_user(uid_t uid) const noexcept {
    const auto found = of_user_.find(uid);
    return found == of_user_.end() ? 0 : found->second;
  }
  [[nodiscard]] bool has(std::uint32_t id) const noexcept { return clients_.contains(id); }
  /// nullptr if there is none.
  [[nodiscard]] Client* by_id(std::uint32_t id) const noexcept {
    const auto found = clients_.find(id);
    return found == clients_.end() ? nullptr : found->second.get();
  }
  /// One that has not retired; nullptr if the connection has none.
  [[nodiscard]] Client* of(ipc::ConnectionId connection) const noexcept {
    const auto found = ids_.find(connection);
    return found == ids_.end() ? nullptr : by_id(found->second);
  }

  void add(std::unique_ptr<Client> client) {
    ids_[client->connection] = client->id;
    ++of_user_[client->peer.uid];
    clients_.emplace(client->id, std::move(client));
  }
  /// Its connection is nobody's from now on.
  void retire(Client& client) {
    client.retired = true;
    ids_.erase(client.connection);
  }
  /// @param id  of one that has retired.
  [[nodiscard]] std::unique_ptr<Client> take(std::uint32_t id) {
    const auto found = clients_.find(id);
    std::unique_ptr<Client> client = std::move(found->second);
    clients_.erase(found);
    const auto of_user = of_user_.find(client->peer.uid);
    if (--of_user->second == 0) of_user_.erase(of_user);
    return client;
  }

 private:
  Clients clients_;
  std::unordered_map<ipc::ConnectionId, std::uint32_t> ids_;  ///< of those not retired
  std::map<uid_t, std::uint32_t> of_user_;
};

/// The next number that is not in use, from 1 to `last_id` (ManagerOptions) and again.
/// @param last  the one that was given last.
template <class IsUsed>
[[nodiscard]] std::uint32_t next_unused(std::uint32_t& last, std::uint32_t last_id,
                                        IsUsed&& is_used) {
  do {
    last = last == last_id ? 1 : last + 1;
  } while (is_used(last));
  return last;
}

}  // namespace gradwire::control
