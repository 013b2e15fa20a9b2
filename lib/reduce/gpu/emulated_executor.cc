// SPDX-License-Identifier: BSD-3-Clause
// Kernels on the emulated device: its thread runs each block's threads one after the other, with
// the same batches and the same functions as CUDA's kernels. It checks every address first, since a
// GPU would fault on memory that is neither its own nor registered.
#include <chrono>
#include <cstring>
#include <thread>

#include "reduce/gpu/emulated_device.h"
#include "reduce/gpu/executor.h"
#include "reduce/gpu/kernel_body.h"
#include "reduce/gpu/persistent_host.h"

namespace gradwire::reduce {
namespace {

constexpr int kIdleRoundsMax = 2'000;  ///< of a persistent kernel before it parks
/// It parks after this many batches too, because the device has one thread, which other queues'
/// kernels wait for.
constexpr int kBatchesMax = 64;

class EmulatedExecutor final : public Executor {
 public:
  EmulatedExecutor(const QueueMemory& memory, const ExecutorOptions& options)
      : memory_(memory),
        device_(*reinterpret_cast<const EmulatedDevice*>(options.context)),
        mode_(options.mode),
        host_(*memory.words) {
    for (std::uint32_t slot = 0; slot < kQueueSlots; ++slot) launches_[slot] = {this, slot};
  }

  [[nodiscard]] bool stop(TimeNs bound_ns) noexcept override {
    if (mode_ == KernelMode::kPersistent) return pause(bound_ns);
    const Deadline end(bound_ns);
    for (std::uint32_t slot = 0; slot < kQueueSlots; ++slot) {
      while (state(slot) == State::kRunning) {
        if (end.has_passed()) return false;
        nap();
      }
    }
    return true;
  }

  [[nodiscard]] bool launch(std::uint32_t slot, std::uint32_t number) noexcept override {
    host_.ring(slot, number, memory_.batches[slot].tile_count);
    if (mode_ == KernelMode::kPersistent) return start_if_needed();
    const auto kernel = [](void* argument, int outcome) {
      const Launch& launch = *static_cast<Launch*>(argument);
      launch.self->run_slot(launch.slot, outcome);
    };
    if (device_.launch(device_.self, kernel, &launches_[slot]) == 0) return true;
    finish(slot, false);
    return false;
  }

  [[nodiscard]] State state(std::uint32_t slot) noexcept override {
    const std::uint32_t done =
        std::atomic_ref(memory_.words->done[slot]).load(std::memory_order_acquire);
    const std::uint32_t number = QueueWords::number_of(
        std::atomic_ref(memory_.words->doorbell[slot]).load(std::memory_order_relaxed));
    if ((done & ~QueueWords::kFailed) != number) return State::kRunning;
    return (done & QueueWords::kFailed) != 0 ? State::kFailed : State::kDone;
  }

  void poll() noexcept override {
    if (mode_ == KernelMode::kPersistent) static_cast<void>(start_if_needed());
  }

  [[nodiscard]] bool pause(TimeNs bound_ns) noexcept override {
    if (mode_ != KernelMode::kPersistent) return true;
    host_.pause();
    for (const Deadline end(bound_ns); !host_.parked(); nap()) {
      if (end.has_passed()) return false;
    }
    return true;
  }
  void resume() noexcept override { host_.resume(); }

 private:
  struct Launch {
    EmulatedExecutor* self = nullptr;
    std::uint32_t slot = 0;
  };
  static constexpr TimeNs kNapNs = 50'000;

  static void nap() noexcept { std::this_thread::sleep_for(std::chrono::nanoseconds(kNapNs)); }

  [[nodiscard]] bool start_if_needed() noexcept {
    return host_.run_if_needed([this](std::uint32_t run) {
      persistent_run_ = run;
      return device_.launch(
                 device_.self,
                 [](void* self, int /*outcome*/) {
                   static_cast<EmulatedExecutor*>(self)->run_persistent();
                 },
                 this) == 0;
    });
  }

  /// A persistent kernel of one block: checks the doorbells in turn.
  void run_persistent() noexcept {
    const std::uint32_t run = persistent_run_;
    QueueWords& words = *memory_.words;
    int idle_rounds = 0;
    int batches = 0;
    while (idle_rounds < kIdleRoundsMax && batches < kBatchesMax &&
           !device_.stopping(device_.self)) {
      if (std::atomic_ref(words.stop).load(std::memory_order_acquire) != 0) break;
      bool worked = false;
      for (std::uint32_t slot = 0; slot < kQueueSlots; ++slot) {
        if (state(slot) != State::kRunning) continue;
        // The comparison above was relaxed. This acquire pairs with the doorbell's release, before
        // the batch is read.
        std::atomic_ref(words.doorbell[slot]).load(std::memory_order_acquire);
        run_slot(slot, device_.begin(device_.self));
        worked = true;
        ++batches;
      }
      idle_rounds = worked ? 0 : idle_rounds + 1;
      if (!worked) std::this_thread::yield();
    }
    std::atomic_ref(words.parked).store(run, std::memory_order_release);
  }

  void run_slot(std::uint32_t slot, int outcome) noexcept {
    const Batch& batch = memory_.batches[slot];
    const SlotCopies& copies = memory_.copies[slot];
    const bool ok = outcome == 0 && may_run(batch, copies);
    if (ok) {
      for (std::uint32_t i = 0; i < copies.count; ++i) {
        std::memcpy(copies.to[i], copies.from[i], copies.bytes[i]);
      }
      for (std::uint32_t tile = 0; tile < batch.tile_count; ++tile) {
        for (std::uint32_t thread = 0; thread < kThreadsPerBlock; ++thread) {
          run_tile<PlainLoad>(batch, tile, thread, kThreadsPerBlock);
        }
        if (batch.items[item_of_tile(batch, tile)].crc == 0) continue;
        for (std::uint32_t thread = 0; thread < kThreadsPerBlock; ++thread) {
          crc_tile<PlainLoad>(batch, tile, thread);
        }
      }
    }
    finish(slot, ok);
  }

  [[nodiscard]] bool reaches(const void* address, std::size_t bytes) const noexcept {
    return device_.accessible(device_.self, address, bytes);
  }

  [[nodiscard]] bool may_run(const Batch& batch, const SlotCopies& copies) const noexcept {
    bool fine = true;
    for (std::uint32_t i = 0; i < copies.count; ++i) {
      fine = fine && reaches(copies.to[i], copies.bytes[i]) &&
             reaches(copies.from[i], copies.bytes[i]);
    }
    for (std::uint32_t i = 0; i < batch.item_count; ++i) {
      const BatchItem& item = batch.items[i];
      const std::size_t bytes = item.bytes;
      for (std::uint32_t a = 0; a < std::uint32_t{item.source_count} + item.target_count; ++a) {
        const std::size_t source_bytes = item.wide == Wide::kSources   ? bytes * 2
                                         : item.wide == Wide::kTargets ? bytes / 2
                                                                       : bytes;
        fine = fine && reaches(at_address<void>(batch.addresses[item.first_address + a]),
                               a < item.source_count ? source_bytes : bytes);
      }
      if (item.crc != 0) {
        const std::size_t tiles = (bytes + kTileBytes - 1) / kTileBytes;
        fine = fine &&
               reaches(crc_words_of(batch, item), tiles * kCrcWordsPerTile * sizeof(std::uint32_t));
      }
    }
    return fine;
  }

  void finish(std::uint32_t slot, bool ok) noexcept {
    const std::uint32_t number = QueueWords::number_of(
        std::atomic_ref(memory_.words->doorbell[slot]).load(std::memory_order_relaxed));
    std::atomic_ref(memory_.words->done[slot])
        .store(ok ? number : number | QueueWords::kFailed, std::memory_order_release);
  }

  const QueueMemory memory_;
  const EmulatedDevice& device_;
  const KernelMode mode_;
  PersistentHost host_;
  std::uint32_t persistent_run_ = 0;
  Launch launches_[kQueueSlots];
};

}  // namespace

Result<std::unique_ptr<Executor>> make_emulated_executor(const QueueMemory& memory,
                                                         const ExecutorOptions& options) {
  const auto* device = reinterpret_cast<const EmulatedDevice*>(options.context);
  if (device == nullptr || device->magic != EmulatedDevice::kMagic ||
      device->version != EmulatedDevice::kVersion) {
    return fail(
        ErrorCode::kUnsupported,
        "the loaded gpu_emu driver is from another build: load the one of this build with -d");
  }
  return std::make_unique<EmulatedExecutor>(memory, options);
}

}  // namespace gradwire::reduce
