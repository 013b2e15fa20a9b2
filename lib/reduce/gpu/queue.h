// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One lane's batches on a GPU: slots that the lane's shards fill with entries, the staging memory
/// of their packets, and the executor that runs them. The lane thread calls everything but the
/// constructor and the destructor; nothing there allocates, blocks or calls the kernel.
///
/// No group can stall another, because each backend of the queue may fill only an equal part of the
/// slots. If there are more backends than slots, each has one at most, and waits for others'
/// batches if all slots are taken: some milliseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "reduce/backend.h"
#include "reduce/gpu/batch.h"
#include "reduce/gpu/executor.h"

namespace gradwire::reduce {

class GpuBackend;
class GpuDevice;

/// How a packet's payload reaches the GPU and comes back.
enum class PayloadPath : std::uint8_t {
  kMapped,      ///< kernels read and write the packet where it lies, in registered host memory
  kCopyMapped,  ///< the CPU writes it into GPU memory that is mapped for it; the kernel writes the
                ///< result to the packet
  kCopyEngine,  ///< the GPU's copy engine brings it; the kernel writes the result to the packet
  kGpuDirect,   ///< it stays in GPU memory, into which ports receive it and from which they send it
};
[[nodiscard]] constexpr const char* name_of(PayloadPath path) noexcept {
  switch (path) {
    case PayloadPath::kMapped:
      return "mapped";
    case PayloadPath::kCopyMapped:
      return "copy by CPU mapping";
    case PayloadPath::kCopyEngine:
      return "copy by copy engine";
    case PayloadPath::kGpuDirect:
      return "gpudirect";
  }
  return "path?";
}

class GpuQueue {
 public:
  /// Control thread. `device` outlives the queue.
  /// @param payload_bytes  of the largest packet.
  [[nodiscard]] static Result<std::unique_ptr<GpuQueue>> create(GpuDevice& device,
                                                                std::uint32_t payload_bytes);
  ~GpuQueue();
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;

  /// Starts one batch from the front of `entries`, all of which are well-formed.
  /// @return how many it took; 0 if no slot is free.
  [[nodiscard]] std::size_t submit(GpuBackend& owner, std::span<const Entry> entries) noexcept;
  /// Tells each owner which of its batches have finished.
  void poll() noexcept;

  /// Control thread, while the lane stands: waits until nothing of the queue runs any more, but no
  /// longer than kStopNs.
  /// @return false if a kernel hangs, which may still write to memory that it was given.
  [[nodiscard]] bool stop() noexcept { return executor_->stop(kStopNs); }
  /// Batches take milliseconds.
  static constexpr TimeNs kStopNs = 10'000'000'000;

  [[nodiscard]] GpuDevice& device() noexcept { return device_; }
  [[nodiscard]] Executor& executor() noexcept { return *executor_; }
  /// Slots that one backend may hold.
  [[nodiscard]] std::uint32_t quota() const noexcept;

 private:
  friend class GpuBackend;
  struct Slot {
    GpuBackend* owner = nullptr;
    std::uint32_t number = 0;
    std::uint64_t started = 0;  ///< the queue's count of batches
    std::uint32_t entries = 0;
    bool launched = false;
    Completion done[Batch::kItems];
    BackendCounters counters;
  };

  explicit GpuQueue(GpuDevice& device) : device_(device) {}
  /// @return false if the batch has no room for the entry.
  [[nodiscard]] bool add(std::uint32_t slot, const Entry& entry) noexcept;
  /// @return the item's words, [crc_words_].
  [[nodiscard]] std::uint32_t* crc_words(std::uint32_t slot, std::size_t item) const noexcept {
    return crcs_ + (std::size_t{slot} * Batch::kItems + item) * crc_words_;
  }
  void take_crcs(std::uint32_t slot) noexcept;
  /// @return the slot of the oldest batch of `busy`, a bit for each slot.
  [[nodiscard]] std::uint32_t oldest(std::uint32_t busy) const noexcept;
  /// @return the slot of `busy` whose turn it is.
  [[nodiscard]] std::uint32_t next(std::uint32_t busy) noexcept;
  /// @return false if the slot's batch still runs.
  [[nodiscard]] bool finish(std::uint32_t slot) noexcept;
  /// Whether packets are copied into staging memory.
  [[nodiscard]] bool stages() const noexcept {
    return path_ == PayloadPath::kCopyMapped || path_ == PayloadPath::kCopyEngine;
  }
  void enter() noexcept { backends_.fetch_add(1, std::memory_order_relaxed); }
  void leave(GpuBackend& owner) noexcept;

  GpuDevice& device_;
  PayloadPath path_ = PayloadPath::kMapped;
  QueueMemory memory_;
  void* host_ = nullptr;           ///< one allocation: words, batches, copies, CRCs
  std::uint32_t* crcs_ = nullptr;  ///< [kQueueSlots][kItems][crc_words_]
  std::uint32_t crc_words_ = 0;
  std::byte* staging_ = nullptr;      ///< GPU memory: [kQueueSlots][kItems][stride_]
  std::byte* staging_cpu_ = nullptr;  ///< the same for the CPU; kCopyMapped
  std::uint32_t stride_ = 0;
  std::unique_ptr<Executor> executor_;
  std::atomic<std::uint32_t> backends_{0};
  std::uint32_t free_ = (1u << kQueueSlots) - 1;  ///< a bit for each slot
  std::uint64_t batches_ = 0;                     ///< started
  std::uint32_t turn_ = 0;                        ///< slot
  Slot slots_[kQueueSlots];
};

}  // namespace gradwire::reduce
