// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What runs the batches of one queue: a CUDA device (lib/reduce/cuda) or the emulated one. The
/// queue's lane calls launch(), state() and poll(); the control thread creates, pauses and
/// destroys. Nothing allocates after creation.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "base/types.h"
#include "reduce/gpu/batch.h"

namespace gradwire::reduce {

/// How kernels are driven.
enum class KernelMode : std::uint8_t {
  kLaunch,      ///< one launch a batch
  kPersistent,  ///< a kernel of some SMs that polls for batches, and parks when idle
};
[[nodiscard]] constexpr const char* name_of(KernelMode mode) noexcept {
  return mode == KernelMode::kLaunch ? "launch" : "persistent";
}

/// What the copy engine copies into GPU memory before a slot's kernel starts, as CUDA takes many
/// copies in one call.
struct SlotCopies {
  std::uint32_t count = 0;
  void* to[Batch::kItems];
  const void* from[Batch::kItems];
  std::size_t bytes[Batch::kItems];
};

/// A queue's memory, which its executor uses and which outlives the executor. Batches and words are
/// registered with the GPU.
struct QueueMemory {
  QueueWords* words = nullptr;
  Batch* batches = nullptr;      ///< [kQueueSlots]
  SlotCopies* copies = nullptr;  ///< [kQueueSlots]
};

/// When a wait for a kernel ends. By the clock: a nap takes longer than it was asked to.
class Deadline {
 public:
  explicit Deadline(TimeNs bound_ns) noexcept
      : end_(std::chrono::steady_clock::now() + std::chrono::nanoseconds(bound_ns)) {}
  [[nodiscard]] bool has_passed() const noexcept { return std::chrono::steady_clock::now() > end_; }

 private:
  std::chrono::steady_clock::time_point end_;
};

struct ExecutorOptions {
  KernelMode mode = KernelMode::kLaunch;
  std::uint32_t persistent_sms = 4;  ///< for the persistent kernel of one queue
  std::uint64_t context = 0;         ///< rte_gpu_info::context
  std::uint32_t processors = 1;      ///< rte_gpu_info::processor_count
};

class Executor {
 public:
  enum class State : std::uint8_t { kRunning, kDone, kFailed };

  /// Nothing runs: stop() has returned true, or nothing was launched.
  virtual ~Executor() = default;
  /// Control thread: waits until nothing runs any more.
  /// @return false if that took longer than `bound_ns`. The kernel may still write to the queue's
  /// memory, so neither that nor the executor may be freed.
  [[nodiscard]] virtual bool stop(TimeNs bound_ns) noexcept = 0;
  /// How often a round may ask for the state of batches that still run: asking a driver is slow.
  [[nodiscard]] virtual std::uint32_t questions_per_round() const noexcept { return kQueueSlots; }
  /// Starts the slot's batch. Batch and copies are filled in; words->doorbell[slot] becomes
  /// `number`.
  /// @return false if the batch did not start and never will.
  [[nodiscard]] virtual bool launch(std::uint32_t slot, std::uint32_t number) noexcept = 0;
  /// @return the state of the slot's last batch. Once it is not kRunning, no kernel and no copy
  /// uses its memory.
  [[nodiscard]] virtual State state(std::uint32_t slot) noexcept = 0;
  /// Call it every round while batches are unfinished.
  virtual void poll() noexcept {}
  /// Control thread: keeps persistent kernels from running until resume().
  /// @return false if a kernel did not end within `bound_ns`.
  [[nodiscard]] virtual bool pause(TimeNs /*bound_ns*/) noexcept { return true; }
  virtual void resume() noexcept {}
};

/// @param context  of a gpu_emu device.
[[nodiscard]] Result<std::unique_ptr<Executor>> make_emulated_executor(
    const QueueMemory& memory, const ExecutorOptions& options);

/// @return kUnsupported if this build has no CUDA.
[[nodiscard]] Result<std::unique_ptr<Executor>> make_cuda_executor(const QueueMemory& memory,
                                                                   const ExecutorOptions& options);

}  // namespace gradwire::reduce
