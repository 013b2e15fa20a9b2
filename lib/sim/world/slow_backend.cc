// SPDX-License-Identifier: BSD-3-Clause
#include "sim/world/slow_backend.h"

#include <algorithm>

namespace gradwire::sim {

SlowBackend::SlowBackend(std::size_t capacity, double chance_per_poll, std::uint64_t seed)
    : inner_(reduce::make_cpu_backend(1)),
      entries_(capacity),
      chance_(chance_per_poll),
      random_(seed) {}

std::size_t SlowBackend::submit(std::span<const reduce::Entry> entries) noexcept {
  const std::size_t taken = std::min(entries.size(), entries_.size() - held_);
  std::copy_n(entries.begin(), taken, entries_.begin() + static_cast<std::ptrdiff_t>(held_));
  held_ += taken;
  return taken;
}

std::size_t SlowBackend::poll(std::span<reduce::Completion> done) noexcept {
  // Memory is read and written at the end, so that memory which was freed too early shows.
  std::size_t count = 0;
  for (std::size_t i = 0; i < held_ && count < done.size();) {
    if (!random_.chance(chance_)) {
      ++i;
      continue;
    }
    (void)inner_->submit({&entries_[i], 1});
    (void)inner_->poll({&done[count], 1});
    ++count;
    entries_[i] = entries_[--held_];
  }
  return count;
}

const reduce::BackendCounters& SlowBackend::counters() const noexcept { return inner_->counters(); }

}  // namespace gradwire::sim
