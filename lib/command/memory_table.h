// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Clients' memory as the command lane knows it. What is to be removed is kept until no accepted
/// command uses it. Lane 0 owns it; adding allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#include "command/messages.h"

namespace gradwire::command {

struct Memory {
  MemoryRegion region;
  std::uint32_t uses = 0;  // by accepted commands; an in-place op counts twice
  Request* removal = nullptr;
};

class MemoryTable {
 public:
  /// Both outlive it.
  /// @param finished  gets removals that are done.
  MemoryTable(std::deque<Request*>& finished, std::uint64_t& steps)
      : finished_(finished), steps_(steps) {}

  void add(const MemoryRegion& region);
  void remove(Request* request);
  /// nullptr if there is none.
  [[nodiscard]] Memory* find(std::uint32_t client_id, std::uint32_t memory) const noexcept;
  /// A command that used it has ended.
  void release(Memory& memory) noexcept {
    --memory.uses;
    remove_if_unused(memory);
  }

 private:
  void remove_if_unused(Memory& memory) noexcept;

  std::deque<Request*>& finished_;
  std::uint64_t& steps_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Memory>> memories_;  // client and handle
};

}  // namespace gradwire::command
