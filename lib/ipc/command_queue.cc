// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/command_queue.h"

#include <cstring>
#include <ctime>
#include <new>

namespace gradwire::ipc {
namespace {

bool fits(const void* memory, std::size_t bytes) noexcept {
  return memory != nullptr && bytes >= sizeof(QueueRegion) &&
         reinterpret_cast<std::uintptr_t>(memory) % alignof(QueueRegion) == 0;
}

/// Copies an entry out of shared memory. The fence keeps the compiler from reading the shared entry
/// again later in place of the private copy, which the peer could have changed in between.
template <class T>
void copy_out(T& out, const T& shared) noexcept {
  std::memcpy(&out, &shared, sizeof(T));
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace

QueueRegion* create_queue_region(void* memory, std::size_t bytes) noexcept {
  if (!fits(memory, bytes)) return nullptr;
  auto* region = new (memory) QueueRegion;
  region->magic = kQueueMagic;
  region->bytes = sizeof(QueueRegion);
  return region;
}

QueueRegion* open_queue_region(void* memory, std::size_t bytes) noexcept {
  if (!fits(memory, bytes)) return nullptr;
  auto* region = static_cast<QueueRegion*>(memory);
  if (region->magic != kQueueMagic || region->bytes != sizeof(QueueRegion)) return nullptr;
  return region;
}

PopResult DaemonQueue::pop_command(CommandEntry& out, CommandExtra& extra) noexcept {
  const std::uint32_t tail = region_->command_tail.load(std::memory_order_acquire);
  const std::uint32_t available = tail - command_head_;
  if (available == 0) return PopResult::kEmpty;
  if (available > kCommandEntries) return PopResult::kPeerFault;
  copy_out(out, region_->commands[command_head_ % kCommandEntries]);
  extra = {};
  if (out.has_extra()) [[unlikely]]
    copy_out(extra, region_->extras[command_head_ % kCommandEntries]);
  ++command_head_;
  region_->command_head.store(command_head_, std::memory_order_release);
  return PopResult::kEntry;
}

bool DaemonQueue::push_completion(const CompletionEntry& entry) noexcept {
  const std::uint32_t head = region_->completion_head.load(std::memory_order_acquire);
  // A head that cannot be (ahead of the tail, or too far behind) gives a huge difference.
  if (completion_tail_ - head >= kCompletionEntries) return false;
  std::memcpy(&region_->completions[completion_tail_ % kCompletionEntries], &entry, sizeof(entry));
  ++completion_tail_;
  region_->completion_tail.store(completion_tail_, std::memory_order_release);
  return true;
}

bool DaemonQueue::take_client_waits() noexcept {
  // Pairs with the fence in set_client_waits(): either this load sees the wish, or the client's
  // last look at the tail sees the completion that was pushed before this call.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (region_->client_waits.load(std::memory_order_relaxed) == 0) return false;
  region_->client_waits.store(0, std::memory_order_relaxed);
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  region_->woken_at_ns.store(static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
                                 static_cast<std::uint64_t>(now.tv_nsec),
                             std::memory_order_relaxed);
  return true;
}

void DaemonQueue::set_daemon_sleeps(bool sleeps) noexcept {
  region_->daemon_sleeps.store(sleeps ? 1 : 0, std::memory_order_relaxed);
  // Pairs with the fence in daemon_sleeps(): the store is seen before the lane looks a last time.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void DaemonQueue::set_lane_core(int core) noexcept {
  region_->lane_core.store(static_cast<std::uint32_t>(core + 1), std::memory_order_relaxed);
}

bool DaemonQueue::has_command() const noexcept {
  return region_->command_tail.load(std::memory_order_acquire) != command_head_;
}

bool ClientQueue::push_command(const CommandEntry& entry, const CommandExtra& extra) noexcept {
  const std::uint32_t head = region_->command_head.load(std::memory_order_acquire);
  if (command_tail_ - head >= kCommandEntries) return false;
  std::memcpy(&region_->commands[command_tail_ % kCommandEntries], &entry, sizeof(entry));
  if (entry.has_extra()) region_->extras[command_tail_ % kCommandEntries] = extra;
  ++command_tail_;
  region_->command_tail.store(command_tail_, std::memory_order_release);
  return true;
}

bool ClientQueue::daemon_sleeps() const noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return region_->daemon_sleeps.load(std::memory_order_relaxed) != 0;
}

PopResult ClientQueue::pop_completion(CompletionEntry& out) noexcept {
  const std::uint32_t tail = region_->completion_tail.load(std::memory_order_acquire);
  const std::uint32_t available = tail - completion_head_;
  if (available == 0) return PopResult::kEmpty;
  if (available > kCompletionEntries) return PopResult::kPeerFault;
  copy_out(out, region_->completions[completion_head_ % kCompletionEntries]);
  out.text[CompletionEntry::kTextBytes - 1] = '\0';
  ++completion_head_;
  region_->completion_head.store(completion_head_, std::memory_order_release);
  return PopResult::kEntry;
}

bool ClientQueue::has_completion() const noexcept {
  return region_->completion_tail.load(std::memory_order_acquire) != completion_head_;
}

int ClientQueue::lane_core() const noexcept {
  return static_cast<int>(region_->lane_core.load(std::memory_order_relaxed)) - 1;
}

std::uint64_t ClientQueue::woken_at_ns() const noexcept {
  return region_->woken_at_ns.load(std::memory_order_relaxed);
}

void ClientQueue::set_client_waits(bool waits) noexcept {
  region_->client_waits.store(waits ? 1 : 0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace gradwire::ipc
