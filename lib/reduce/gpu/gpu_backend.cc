// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/gpu/gpu_backend.h"

#include <algorithm>

#include "reduce/gpu/device.h"
#include "reduce/lowering.h"

namespace gradwire::reduce {

namespace {

/// Whether one batch has room for the addresses of all.
bool fit_together(std::span<const Entry> entries) noexcept {
  std::size_t addresses = 0;
  for (const Entry& entry : entries) {
    const std::size_t sources =
        entry.kind == Kind::kFoldInOrder ? entry.source_count : entry.member_count + 1u;
    addresses += sources + entry.member_count + 2;  // the targets, and the CRC's words
  }
  return addresses <= Batch::kAddresses;
}

}  // namespace

GpuBackend::GpuBackend(GpuQueue& queue) : queue_(queue), done_(kQueueSlots * Batch::kItems * 2) {
  queue_.enter();
}

GpuBackend::~GpuBackend() { queue_.leave(*this); }

const char* GpuBackend::name() const noexcept { return queue_.device().kind(); }
const char* GpuBackend::path() const noexcept { return name_of(queue_.path_); }

std::size_t GpuBackend::submit(std::span<const Entry> entries) noexcept {
  std::size_t taken = 0;
  while (taken < entries.size() && held_ + entries_in_queue_ < done_.size() - Batch::kItems) {
    // A batch ends before the next entry that is not well-formed.
    const auto rest = entries.subspan(taken, std::min(entries.size() - taken, Batch::kItems));
    const auto bad = std::find_if_not(rest.begin(), rest.end(), [](const Entry& entry) {
      return is_well_formed(entry, Batch::kSourcesMax);
    });
    const auto good = static_cast<std::size_t>(bad - rest.begin());
    if (good == 0) {
      complete({rest.front().cookie, false});
      ++taken;
      continue;
    }
    // A batch costs the lane the same however few entries it has. So while the GPU has work enough,
    // entries wait until there is a batch of them, or until it needs more.
    const bool fills = rest.size() >= Batch::kItems || !fit_together(rest);
    const std::uint32_t most = fills ? kQueueSlots : kEagerBatches;
    if (batches_ >= std::min(most, queue_.quota())) break;
    const std::size_t started = queue_.submit(*this, rest.first(good));
    if (started == 0) break;
    ++batches_;
    entries_in_queue_ += static_cast<std::uint32_t>(started);
    taken += started;
  }
  return taken;
}

std::size_t GpuBackend::poll(std::span<Completion> done) noexcept {
  queue_.poll();
  const std::size_t count = std::min(done.size(), held_);
  for (Completion& completion : done.first(count)) {
    completion = done_[first_];
    first_ = first_ + 1 == done_.size() ? 0 : first_ + 1;
  }
  held_ -= count;
  return count;
}

void GpuBackend::complete(const Completion& entry) noexcept {
  done_[(first_ + held_) % done_.size()] = entry;
  ++held_;
}

void GpuBackend::finished(std::span<const Completion> entries, bool ok,
                          const BackendCounters& counters) noexcept {
  --batches_;
  entries_in_queue_ -= static_cast<std::uint32_t>(entries.size());
  for (const Completion& entry : entries) complete({entry.cookie, ok, entry.crc});
  if (!ok) return;
  counters_.chunks_reduced += counters.chunks_reduced;
  counters_.chunks_moved += counters.chunks_moved;
  counters_.bytes += counters.bytes;
  ++counters_.batches;
}

}  // namespace gradwire::reduce
