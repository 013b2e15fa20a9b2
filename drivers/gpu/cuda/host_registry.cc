// SPDX-License-Identifier: BSD-3-Clause
#include "host_registry.h"

#include <algorithm>
#include <cerrno>

namespace gradwire::gpu_cuda {

int HostRegistry::add(std::uintptr_t address, std::size_t bytes) {
  if (bytes == 0 || address + bytes < address) return -EINVAL;
  if (pieces_.contains(address)) return -EEXIST;
  const std::uintptr_t end = (address + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::uintptr_t at = address / kPageBytes * kPageBytes;
  std::vector<std::uintptr_t> used;
  while (at < end) {
    // The run that contains `at`; else the gap before the next run.
    auto next = runs_.upper_bound(at);
    if (next != runs_.begin() && std::prev(next)->second.end > at) {
      auto& [begin, run] = *std::prev(next);
      ++run.users;
      used.push_back(begin);
      at = run.end;
      continue;
    }
    const std::uintptr_t gap_end = next == runs_.end() ? end : std::min(end, next->first);
    if (const int failed = pin_(at, gap_end - at); failed != 0) {
      for (const std::uintptr_t begin : used) static_cast<void>(release(begin));
      return failed;
    }
    runs_.emplace(at, Run{gap_end, 1});
    used.push_back(at);
    at = gap_end;
  }
  pieces_.emplace(address, std::move(used));
  return 0;
}

int HostRegistry::remove(std::uintptr_t address) {
  const auto found = pieces_.find(address);
  if (found == pieces_.end()) return -EINVAL;
  int first_failure = 0;
  for (const std::uintptr_t begin : found->second) {
    const int failed = release(begin);
    if (first_failure == 0) first_failure = failed;
  }
  pieces_.erase(found);
  return first_failure;
}

int HostRegistry::release(std::uintptr_t run) {
  const auto found = runs_.find(run);
  if (--found->second.users != 0) return 0;
  runs_.erase(found);
  return unpin_(run);
}

void HostRegistry::clear() noexcept {
  for (const auto& [begin, run] : runs_) unpin_(begin);
  runs_.clear();
  pieces_.clear();
}

}  // namespace gradwire::gpu_cuda
