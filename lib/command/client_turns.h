// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The clients of the command lane, and whose queue is read next: users get their turns, and of a
/// user its clients. A client without commands for a while rests; a round looks at one of those, in
/// turn, so its cost does not depend on their number. Lane 0 owns it; adding allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace gradwire::command {

struct Client;
struct User;

class ClientTurns {
 public:
  using Clients = std::vector<std::unique_ptr<Client>>;

  /// @param steps  of the command lane, which outlives it.
  explicit ClientTurns(std::uint64_t& steps);
  ~ClientTurns();
  ClientTurns(const ClientTurns&) = delete;
  ClientTurns& operator=(const ClientTurns&) = delete;

  [[nodiscard]] const Clients& all() const noexcept { return clients_; }
  /// nullptr if there is none.
  [[nodiscard]] Client* find(std::uint32_t client_id) const noexcept;
  void add(std::unique_ptr<Client> client);
  /// Destroys it.
  void remove(Client& client) noexcept;

  /// Its queue is read from now on.
  void wake(Client& client) noexcept;
  /// Wakes the next of those that rest, if it has a command.
  void look_at_next() noexcept;
  /// The same of all.
  bool wake_all_with_commands() noexcept;
  /// Reads of clients that are awake what a round may (client_turns_run.h).
  /// @param read  (Client&, std::uint64_t until) -> bool: reads commands of a client, and says
  /// whether there were any.
  /// @return whether there was anything.
  template <class Read>
  bool run(Read&& read) noexcept;
  /// Whether a command can be read of the client.
  [[nodiscard]] static bool may_command(const Client& client) noexcept;

 private:
  template <class Read>
  [[nodiscard]] bool poll_user(User& user, std::uint64_t until, Read& read) noexcept;
  void rest(Client& client) noexcept;

  /// After this many rounds without a command a client rests.
  static constexpr std::uint32_t kQuietRounds = 4096;

  std::uint64_t& steps_;
  Clients clients_;
  std::unordered_map<std::uint32_t, Client*> index_;  // by id
  std::vector<std::unique_ptr<User>> users_;          // that have clients
  std::vector<User*> awake_users_;                    // that have clients which are awake
  std::size_t next_user_ = 0;                         // whose turn it is of those
  std::size_t awake_ = 0;                             // clients
  std::size_t next_look_ = 0;                         // into clients_
};

}  // namespace gradwire::command
