// SPDX-License-Identifier: BSD-3-Clause
// The fake's memory, which processes can share.
#include <map>
#include <mutex>

#include "fake_cuda_file.h"

namespace {

using namespace gradwire::fake_cuda;

constexpr std::size_t kBlock = std::size_t{2} << 20;

std::mutex memory_mutex;
std::map<unsigned long long, Shared> allocations;  ///< by the address given out
std::map<unsigned long long, Shared> imports;
std::size_t used = 0;

}  // namespace

bool gradwire::fake_cuda::find_allocation(std::uintptr_t address, std::uintptr_t& begin,
                                          std::uintptr_t& end) {
  const std::lock_guard lock(memory_mutex);
  for (const auto* table : {&allocations, &imports}) {
    const auto after = table->upper_bound(address);
    if (after == table->begin()) continue;
    const auto& [start, shared] = *std::prev(after);
    begin = start;
    end = reinterpret_cast<std::uintptr_t>(shared.base) + shared.bytes;
    if (address < end) return true;
  }
  return false;
}

void gradwire::fake_cuda::count_memory(Held& held) {
  const std::lock_guard lock(memory_mutex);
  held.allocations = static_cast<int>(allocations.size());
  held.imports += static_cast<int>(imports.size());
}

extern "C" {
int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(memory_mutex);
  if (bytes > total_memory() - used) return kOutOfMemory;
  // A small allocation does not begin at a page, since a real one shares its block with others.
  const std::size_t offset = bytes % kBlock == 0 ? 0 : 256;
  Shared made;
  if (!make_shared_file(bytes + offset, made)) return kOutOfMemory;
  // Filled with what a GPU's memory may hold: gpu_cuda has to clear it.
  std::memset(made.base, 0xee, made.bytes);
  *address = reinterpret_cast<unsigned long long>(made.base + offset);
  used += made.bytes;
  allocations[*address] = made;
  return kSuccess;
}
int cuMemFree_v2(unsigned long long address) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(memory_mutex);
  const auto found = allocations.find(address);
  if (found == allocations.end()) return kInvalidValue;
  // From here on its handle opens nothing, even where the descriptor's number is another's.
  std::memset(found->second.base + found->second.bytes, 0, sizeof found->second.nonce);
  used -= found->second.bytes;
  found->second.release();
  allocations.erase(found);
  return kSuccess;
}
int cuMemsetD8_v2(unsigned long long address, unsigned char value, std::size_t bytes) {
  if (!has_context()) return kInvalidContext;
  std::memset(reinterpret_cast<void*>(address), value, bytes);
  return kSuccess;
}
int cuMemGetAddressRange_v2(unsigned long long* base, std::size_t* bytes,
                            unsigned long long address) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(memory_mutex);
  for (const auto* table : {&allocations, &imports}) {
    for (const auto& [start, shared] : *table) {
      const auto first = reinterpret_cast<unsigned long long>(shared.base);
      if (address < start || address >= first + shared.bytes) continue;
      *base = start;
      *bytes = first + shared.bytes - start;
      return kSuccess;
    }
  }
  return kInvalidValue;
}

int cuIpcGetMemHandle(Handle* out, unsigned long long address) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(memory_mutex);
  const auto found = allocations.find(address);
  // Stricter than CUDA, which would hand out its neighbors in the block too.
  if (found == allocations.end() || found->second.bytes % kBlock != 0) return kInvalidValue;
  *out = handle_of(Handle::kMemory, found->second);
  return kSuccess;
}
int cuIpcOpenMemHandle_v2(unsigned long long* address, Handle handle, unsigned flags) {
  if (!has_context()) return kInvalidContext;
  if (flags != 1) return kInvalidValue;
  Shared opened;
  if (const int failed = open_handle(Handle::kMemory, handle, opened); failed != kSuccess) {
    return failed;
  }
  const std::lock_guard lock(memory_mutex);
  *address = reinterpret_cast<unsigned long long>(opened.base);
  imports[*address] = opened;
  return kSuccess;
}
int cuIpcCloseMemHandle(unsigned long long address) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(memory_mutex);
  const auto found = imports.find(address);
  if (found == imports.end()) return kInvalidValue;
  found->second.release();
  imports.erase(found);
  return kSuccess;
}
}
