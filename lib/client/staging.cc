// SPDX-License-Identifier: BSD-3-Clause
#include "client/staging.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/streaming_copy.h"

namespace gradwire::client {

Mapping::~Mapping() {
  pinned_.reset();
  if (on_gpu == nullptr) ::munmap(address, bytes);
}

Result<void> Mapping::pin(gpu::Device& device) {
  const std::lock_guard lock(pin_mutex_);
  if (pinned_ != nullptr) return {};
  auto pinned = device.register_host(address, bytes);
  if (!pinned) {
    return fail(pinned.error().code,
                fmt::format("{} bytes of gradient memory cannot be pinned for copies of a GPU: {}",
                            bytes, pinned.error().message));
  }
  pinned_ = std::move(*pinned);
  return {};
}

Result<void> Mapping::copy(void* to, const void* from, std::uint64_t count) const {
  if (on_gpu != nullptr) return on_gpu->device().copy(to, from, count);
  if (count >= kStreamingCopyBytes) {
    streaming_copy(to, from, count);
  } else {
    std::memcpy(to, from, count);
  }
  return {};
}

std::size_t StagingPool::class_of(std::uint64_t bytes) noexcept {
  const std::uint64_t slot = std::bit_ceil(std::max(bytes, kSmallestSlot));
  return static_cast<std::size_t>(std::countr_zero(slot) - std::countr_zero(kSmallestSlot));
}

std::uint64_t StagingPool::allocation_bytes(std::uint64_t bytes) noexcept {
  if (bytes > kLargestSmallSlot) return bytes;
  return std::max(kSmallestSlab, kSlotsPerSlab * (kSmallestSlot << class_of(bytes)));
}

std::optional<StagingSlot> StagingPool::take(std::uint64_t bytes) {
  if (bytes <= kLargestSmallSlot) {
    auto& free = small_free_[class_of(bytes)];
    if (free.empty()) return std::nullopt;
    StagingSlot slot = std::move(free.back());
    free.pop_back();
    return slot;
  }
  // Best fit, but never more than twice as large as needed, which would waste hugepages.
  auto best = large_free_.end();
  for (auto it = large_free_.begin(); it != large_free_.end(); ++it) {
    if ((*it)->bytes < bytes || (*it)->bytes / 2 > bytes) continue;
    if (best == large_free_.end() || (*it)->bytes < (*best)->bytes) best = it;
  }
  if (best == large_free_.end()) return std::nullopt;
  std::shared_ptr<Mapping> mapping = std::move(*best);
  large_free_.erase(best);
  large_free_bytes_ -= mapping->bytes;
  const std::uint64_t size = mapping->bytes;
  return StagingSlot{std::move(mapping), 0, size};
}

StagingSlot StagingPool::adopt(std::shared_ptr<Mapping> mapping, std::uint64_t bytes) {
  total_bytes_ += mapping->bytes;
  if (bytes > kLargestSmallSlot) {
    const std::uint64_t size = mapping->bytes;
    return StagingSlot{std::move(mapping), 0, size};
  }
  const std::size_t index = class_of(bytes);
  const std::uint64_t slot_bytes = kSmallestSlot << index;
  auto& free = small_free_[index];
  for (std::uint64_t at = slot_bytes; at + slot_bytes <= mapping->bytes; at += slot_bytes) {
    free.push_back(StagingSlot{mapping, at, slot_bytes});
  }
  return StagingSlot{std::move(mapping), 0, slot_bytes};
}

std::shared_ptr<Mapping> StagingPool::give_back(StagingSlot slot) {
  if (slot.bytes <= kLargestSmallSlot) {
    small_free_[class_of(slot.bytes)].push_back(std::move(slot));
    return nullptr;
  }
  if (large_free_bytes_ + slot.mapping->bytes > cache_bytes_) {
    total_bytes_ -= slot.mapping->bytes;
    return std::move(slot.mapping);
  }
  large_free_bytes_ += slot.mapping->bytes;
  large_free_.push_back(std::move(slot.mapping));
  return nullptr;
}

std::vector<std::shared_ptr<Mapping>> StagingPool::drop_cache() {
  total_bytes_ -= large_free_bytes_;
  large_free_bytes_ = 0;
  return std::exchange(large_free_, {});
}

}  // namespace gradwire::client
