// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How commands end: a client's record holds an accepted command until its completion is in the
/// client's queue. A client that does not read its completions gets no more commands read: it has
/// no record. Lane 0 owns it; it does not allocate.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "command/client_turns.h"
#include "command/command_check.h"
#include "command/counters.h"
#include "command/memory_table.h"

namespace gradwire::command {

class Answers {
 public:
  /// All of them outlive it.
  Answers(CommandCounters& counters, ClientTurns& clients, MemoryTable& memories,
          std::uint64_t& steps)
      : counters_(counters), clients_(clients), memories_(memories), steps_(steps) {}

  /// Accepted commands of all clients that are not answered.
  [[nodiscard]] std::uint64_t unfinished() const noexcept { return unfinished_; }
  /// A command is accepted. @param record  of the client.
  void begin(Client& client, std::uint16_t record) noexcept;
  void refuse(Client& client, std::uint16_t record, const Refusal& refusal) noexcept;
  /// @param bytes  that a send or a receive has moved
  void complete(Client& client, std::uint16_t record, ErrorCode status, const char* text,
                std::uint64_t bytes = 0) noexcept;
  /// Pushes what waits for room, at most so many.
  void push_waiting(Client& client, std::uint32_t most) noexcept;

 private:
  CommandCounters& counters_;
  ClientTurns& clients_;
  MemoryTable& memories_;
  std::uint64_t& steps_;
  std::uint64_t unfinished_ = 0;
};

}  // namespace gradwire::command
