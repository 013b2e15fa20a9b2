// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/gpu/queue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

#include "reduce/gpu/append.h"
#include "reduce/gpu/device.h"
#include "reduce/gpu/gpu_backend.h"
#include "reduce/lowering.h"

namespace gradwire::reduce {
namespace {

/// Suits the GPU's cache lines, and is a multiple of its vectors' alignment.
constexpr std::uint32_t kStagingAlign = 256;

}  // namespace

Result<std::unique_ptr<GpuQueue>> GpuQueue::create(GpuDevice& device, std::uint32_t payload_bytes) {
  std::unique_ptr<GpuQueue> queue(new GpuQueue(device));
  queue->path_ = device.path();
  constexpr std::size_t kBatches = sizeof(QueueWords);
  constexpr std::size_t kCopies = kBatches + kQueueSlots * sizeof(Batch);
  constexpr std::size_t kCrcs = kCopies + kQueueSlots * sizeof(SlotCopies);
  static_assert(kBatches % alignof(Batch) == 0 && kCopies % alignof(SlotCopies) == 0);
  queue->crc_words_ = (payload_bytes + kTileBytes - 1) / kTileBytes * kCrcWordsPerTile;
  const std::size_t crcs = std::size_t{kQueueSlots} * Batch::kItems * queue->crc_words_;
  auto host = device.allocate_host(kCrcs + crcs * sizeof(std::uint32_t), "a queue");
  if (!host) return tl::unexpected(host.error());
  queue->host_ = *host;
  auto* base = static_cast<std::byte*>(*host);
  queue->memory_.words = new (base) QueueWords{};
  queue->memory_.batches = new (base + kBatches) Batch[kQueueSlots]{};
  queue->memory_.copies = new (base + kCopies) SlotCopies[kQueueSlots]{};
  queue->crcs_ = new (base + kCrcs) std::uint32_t[crcs]{};

  queue->stride_ = (payload_bytes + kStagingAlign - 1) / kStagingAlign * kStagingAlign;
  if (queue->stages()) {
    const std::size_t bytes = std::size_t{kQueueSlots} * Batch::kItems * queue->stride_;
    auto staging = device.allocate(bytes, kStagingAlign);
    if (!staging) return tl::unexpected(staging.error());
    queue->staging_ = *staging;
    if (queue->path_ == PayloadPath::kCopyMapped) {
      auto mapped = device.map_for_cpu(queue->staging_, bytes);
      if (!mapped) return tl::unexpected(mapped.error());
      queue->staging_cpu_ = *mapped;
    }
  }
  auto executor = device.make_executor(queue->memory_);
  if (!executor) return tl::unexpected(executor.error());
  queue->executor_ = std::move(*executor);
  device.add(*queue);
  return queue;
}

GpuQueue::~GpuQueue() {
  if (executor_ != nullptr) {
    device_.remove(*this);
    if (!stop()) {
      // A kernel hangs. What it may still write to is given up, and stays allocated.
      static_cast<void>(executor_.release());
      return;
    }
    executor_.reset();
  }
  if (staging_cpu_ != nullptr) device_.unmap_for_cpu(staging_);
  if (staging_ != nullptr) device_.free(staging_);
  if (host_ != nullptr) device_.free_host(host_);
}

std::uint32_t GpuQueue::quota() const noexcept {
  const std::uint32_t backends = backends_.load(std::memory_order_relaxed);
  return backends < kQueueSlots ? kQueueSlots / std::max(backends, 1u) : 1;
}

void GpuQueue::leave(GpuBackend& owner) noexcept {
  backends_.fetch_sub(1, std::memory_order_relaxed);
  for (Slot& slot : slots_) {
    if (slot.owner == &owner) slot.owner = nullptr;
  }
}

std::size_t GpuQueue::submit(GpuBackend& owner, std::span<const Entry> entries) noexcept {
  if (free_ == 0 || entries.empty()) return 0;
  const auto index = static_cast<std::uint32_t>(std::countr_zero(free_));
  Slot& slot = slots_[index];
  Batch& batch = memory_.batches[index];
  SlotCopies& copies = memory_.copies[index];
  clear(batch);
  copies.count = 0;
  slot.owner = &owner;
  slot.started = ++batches_;
  slot.entries = 0;
  slot.counters = {};
  for (const Entry& entry : entries) {
    if (!add(index, entry)) break;
    slot.done[slot.entries++] = {entry.cookie};
  }
  free_ &= ~(1u << index);
  // A slot's number changes with each batch, and is never 0 and never has the bit kFailed.
  slot.number = slot.number + 1 == QueueWords::kFailed ? 1 : slot.number + 1;
  // What the CPU or a port has written into GPU memory is there before a kernel starts.
  const bool is_there = (path_ != PayloadPath::kCopyMapped && path_ != PayloadPath::kGpuDirect) ||
                        device_.write_barrier();
  slot.launched = is_there && executor_->launch(index, slot.number);
  return slot.entries;
}

bool GpuQueue::add(std::uint32_t index, const Entry& entry) noexcept {
  Batch& batch = memory_.batches[index];
  std::array<const std::byte*, Batch::kSourcesMax> sources;
  std::array<std::byte*, kMaxTargets> targets;
  static_assert(Batch::kSourcesMax >= kMaxSources);
  static_assert(Batch::kSourcesMax + kMaxTargets + 1 <= Batch::kAddresses);
  Fold fold;
  lower_any(entry, sources.data(), targets.data(), fold);
  if (!has_room(batch, fold)) return false;
  const std::uint32_t bytes = entry.count * target_width(entry);
  if (entry.crc && bytes > stride_) return false;
  if (stages() && reads_packet(entry.kind) && entry.packet != nullptr) {
    if (bytes > stride_) return false;
    const std::size_t offset = (std::size_t{index} * Batch::kItems + batch.item_count) * stride_;
    std::byte* const staged = staging_ + offset;
    if (path_ == PayloadPath::kCopyMapped) {
      std::memcpy(staging_cpu_ + offset, entry.packet, bytes);
    } else {
      SlotCopies& copies = memory_.copies[index];
      copies.to[copies.count] = staged;
      copies.from[copies.count] = entry.packet;
      copies.bytes[copies.count++] = bytes;
    }
    sources[fold.source_count - 1] = staged;
  }

  append(batch, entry, fold, crc_words(index, batch.item_count));
  if (entry.kind == Kind::kCheck) return true;
  BackendCounters& counters = slots_[index].counters;
  counters.bytes += bytes;
  ++(reduces(entry.kind) ? counters.chunks_reduced : counters.chunks_moved);
  return true;
}

void GpuQueue::take_crcs(std::uint32_t index) noexcept {
  const Batch& batch = memory_.batches[index];
  for (std::uint32_t i = 0; i < batch.item_count; ++i) {
    if (batch.items[i].crc != 0) slots_[index].done[i].crc = crc_of(batch, i, crc_words(index, i));
  }
}

void GpuQueue::poll() noexcept {
  std::uint32_t busy = ~free_ & ((1u << kQueueSlots) - 1);
  if (busy == 0) return;
  executor_->poll();
  // The oldest first; then those that are next in turn, so that none waits behind one that hangs.
  std::uint32_t questions = executor_->questions_per_round();
  for (std::uint32_t index = oldest(busy); busy != 0 && questions > 0; index = next(busy)) {
    busy &= ~(1u << index);
    if (!finish(index)) --questions;
  }
}

std::uint32_t GpuQueue::oldest(std::uint32_t busy) const noexcept {
  auto found = static_cast<std::uint32_t>(std::countr_zero(busy));
  for (; busy != 0; busy &= busy - 1) {
    const auto index = static_cast<std::uint32_t>(std::countr_zero(busy));
    if (slots_[index].started < slots_[found].started) found = index;
  }
  return found;
}

std::uint32_t GpuQueue::next(std::uint32_t busy) noexcept {
  if (busy == 0) return 0;
  const std::uint32_t later = busy & ~((1u << turn_) - 1);
  const auto index = static_cast<std::uint32_t>(std::countr_zero(later != 0 ? later : busy));
  turn_ = (index + 1) % kQueueSlots;
  return index;
}

bool GpuQueue::finish(std::uint32_t index) noexcept {
  Slot& slot = slots_[index];
  const Executor::State state = slot.launched ? executor_->state(index) : Executor::State::kFailed;
  if (state == Executor::State::kRunning) return false;
  free_ |= 1u << index;
  if (slot.owner != nullptr) {
    take_crcs(index);
    slot.owner->finished({slot.done, slot.entries}, state == Executor::State::kDone, slot.counters);
  }
  slot.owner = nullptr;
  return true;
}

}  // namespace gradwire::reduce
