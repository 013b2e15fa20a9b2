// SPDX-License-Identifier: BSD-3-Clause
#include "command/memory_table.h"

#include <utility>

#include "base/planted_bug.h"

namespace gradwire::command {
namespace {

std::uint64_t memory_key(std::uint32_t client_id, std::uint32_t memory) noexcept {
  return static_cast<std::uint64_t>(client_id) << 32 | memory;
}

}  // namespace

void MemoryTable::add(const MemoryRegion& region) {
  auto memory = std::make_unique<Memory>();
  memory->region = region;
  memories_[memory_key(region.client_id, region.memory)] = std::move(memory);
}

void MemoryTable::remove(Request* request) {
  Memory* memory = find(request->client_id, request->memory);
  if (memory == nullptr || memory->removal != nullptr) {
    finished_.push_back(request);
    return;
  }
  memory->removal = request;
  remove_if_unused(*memory);
}

Memory* MemoryTable::find(std::uint32_t client_id, std::uint32_t memory) const noexcept {
  const auto found = memories_.find(memory_key(client_id, memory));
  return found == memories_.end() ? nullptr : found->second.get();
}

void MemoryTable::remove_if_unused(Memory& memory) noexcept {
  if (planted(PlantedBug::kLooksAtAllMemories)) steps_ += memories_.size();
  if (memory.removal == nullptr || memory.uses != 0) return;
  finished_.push_back(memory.removal);
  memories_.erase(memory_key(memory.region.client_id, memory.region.memory));
}

}  // namespace gradwire::command
