// SPDX-License-Identifier: BSD-3-Clause
// Batches on a CUDA device, by CUDA's runtime (linked in; libcuda itself is loaded at run time).
// The gpudev driver has made the device's primary context, which the runtime uses too.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "reduce/cuda/kernels.h"
#include "reduce/gpu/executor.h"
#include "reduce/gpu/persistent_host.h"

namespace gradwire::reduce {
namespace {

constexpr std::uint32_t kBlocksPerProcessor = 16;
constexpr std::uint64_t kIdleNs = 2'000'000;  ///< of a persistent kernel before it parks
constexpr std::uint32_t kRoundsPerFaultCheck = 4'096;

tl::unexpected<Error> cuda_error(const char* call, cudaError_t result) {
  return fail(ErrorCode::kSystem, std::string(call) + ": " + cudaGetErrorName(result) + " (" +
                                      std::to_string(result) + "): " + cudaGetErrorString(result));
}

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(const QueueMemory& memory, const ExecutorOptions& options)
      : memory_(memory), options_(options), host_(*memory.words) {}

  ~CudaExecutor() override {
    cudaSetDevice(device_);
    for (cudaStream_t stream : streams_) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
    for (cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (state_ != nullptr) cudaFree(state_);
  }

  [[nodiscard]] bool stop(TimeNs bound_ns) noexcept override {
    cudaSetDevice(device_);
    const Deadline end(bound_ns);
    if (!pause(bound_ns)) return false;
    for (cudaStream_t stream : streams_) {
      if (stream == nullptr) continue;
      while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        if (end.has_passed()) return false;
        nap();
      }
    }
    return true;
  }

  [[nodiscard]] Result<void> start() {
    // Finds the device that the queue's memory is registered with.
    cudaPointerAttributes attributes{};
    if (const auto got = cudaPointerGetAttributes(&attributes, memory_.batches);
        got != cudaSuccess) {
      return cuda_error("cudaPointerGetAttributes", got);
    }
    device_ = attributes.device;
    if (const auto set = cudaSetDevice(device_); set != cudaSuccess) {
      return cuda_error("cudaSetDevice", set);
    }
    if (const auto loaded = cuda::load_kernels(); loaded != cudaSuccess) {
      return cuda_error("loading the kernels", loaded);
    }
    const bool persistent = options_.mode == KernelMode::kPersistent;
    for (std::uint32_t slot = 0; slot < (persistent ? 1 : kQueueSlots); ++slot) {
      // A stream for each slot, so that no batch waits for another group's.
      if (const auto made = cudaStreamCreateWithFlags(&streams_[slot], cudaStreamNonBlocking);
          made != cudaSuccess) {
        return cuda_error("cudaStreamCreateWithFlags", made);
      }
      if (const auto made = cudaEventCreateWithFlags(&events_[slot], cudaEventDisableTiming);
          made != cudaSuccess) {
        return cuda_error("cudaEventCreateWithFlags", made);
      }
    }
    if (persistent) {
      void* state = nullptr;
      if (const auto made = cudaMalloc(&state, sizeof(cuda::PersistentState));
          made != cudaSuccess) {
        return cuda_error("cudaMalloc", made);
      }
      state_ = static_cast<cuda::PersistentState*>(state);
    }
    return {};
  }

  [[nodiscard]] bool launch(std::uint32_t slot, std::uint32_t number) noexcept override {
    if (options_.mode == KernelMode::kPersistent) {
      // No doorbell may ring for a batch that is given up: a kernel that starts later would run it.
      if (faulted_) return false;
      host_.ring(slot, number, memory_.batches[slot].tile_count);
      faulted_ = !start_if_needed();
      return !faulted_;
    }
    cudaSetDevice(device_);
    cudaStream_t stream = streams_[slot];
    cudaError_t result = copy_in(memory_.copies[slot], stream);
    if (result == cudaSuccess) {
      result = cuda::launch_batch(memory_.batches[slot], options_.processors * kBlocksPerProcessor,
                                  stream);
    }
    // Record the event even after a failure: what has started must end before the slot is free.
    const cudaError_t recorded = cudaEventRecord(events_[slot], stream);
    failed_[slot] = result != cudaSuccess;
    return recorded == cudaSuccess;
  }

  [[nodiscard]] State state(std::uint32_t slot) noexcept override {
    if (options_.mode == KernelMode::kPersistent) {
      const std::uint32_t done =
          std::atomic_ref(memory_.words->done[slot]).load(std::memory_order_acquire);
      if ((done & ~QueueWords::kFailed) == QueueWords::number_of(memory_.words->doorbell[slot])) {
        return (done & QueueWords::kFailed) != 0 ? State::kFailed : State::kDone;
      }
      return faulted_ ? State::kFailed : State::kRunning;
    }
    const cudaError_t result = cudaEventQuery(events_[slot]);
    if (result == cudaErrorNotReady) return State::kRunning;
    return result == cudaSuccess && !failed_[slot] ? State::kDone : State::kFailed;
  }

  /// The oldest batch, and another, so that none waits behind one that hangs.
  [[nodiscard]] std::uint32_t questions_per_round() const noexcept override {
    return options_.mode == KernelMode::kPersistent ? kQueueSlots : 2;
  }

  void poll() noexcept override {
    if (options_.mode != KernelMode::kPersistent) return;
    // A kernel that faulted reports nothing any more.
    if (++rounds_ % kRoundsPerFaultCheck == 0) {
      const cudaError_t result = cudaStreamQuery(streams_[0]);
      faulted_ = faulted_ || (result != cudaSuccess && result != cudaErrorNotReady);
    }
    if (!faulted_) faulted_ = !start_if_needed();
  }

  [[nodiscard]] bool pause(TimeNs bound_ns) noexcept override {
    if (options_.mode != KernelMode::kPersistent) return true;
    host_.pause();
    for (const Deadline end(bound_ns); !host_.parked(); nap()) {
      const cudaError_t result = cudaStreamQuery(streams_[0]);
      if (result != cudaErrorNotReady && result != cudaSuccess) return true;  // it is dead
      if (end.has_passed()) return false;
    }
    return true;
  }
  void resume() noexcept override { host_.resume(); }

 private:
  static constexpr TimeNs kNapNs = 20'000;
  static void nap() noexcept {
    const timespec time{0, kNapNs};
    nanosleep(&time, nullptr);
  }
  /// By one call, where CUDA has such a call in a form that stays.
  static cudaError_t copy_in(const SlotCopies& copies, cudaStream_t stream) noexcept {
    if (copies.count == 0) return cudaSuccess;
#if CUDART_VERSION >= 13000
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;  // the attributes are those of all copies from the first on
    return cudaMemcpyBatchAsync(copies.to, copies.from, copies.bytes, copies.count, &attributes,
                                &first, 1, stream);
#else
    cudaError_t result = cudaSuccess;
    for (std::uint32_t i = 0; i < copies.count && result == cudaSuccess; ++i) {
      result = cudaMemcpyAsync(copies.to[i], copies.from[i], copies.bytes[i],
                               cudaMemcpyHostToDevice, stream);
    }
    return result;
#endif
  }

  [[nodiscard]] bool start_if_needed() noexcept {
    return host_.run_if_needed([this](std::uint32_t run) {
      cudaSetDevice(device_);
      cuda::PersistentArguments arguments;
      arguments.words = memory_.words;
      arguments.batches = memory_.batches;
      arguments.state = state_;
      arguments.run = run;
      arguments.idle_ns = kIdleNs;
      const std::uint32_t processors = std::clamp(options_.persistent_sms, 1u, options_.processors);
      return cuda::launch_persistent(arguments, processors, streams_[0]) == cudaSuccess;
    });
  }

  const QueueMemory memory_;
  const ExecutorOptions options_;
  PersistentHost host_;
  int device_ = 0;
  cudaStream_t streams_[kQueueSlots] = {};
  cudaEvent_t events_[kQueueSlots] = {};
  bool failed_[kQueueSlots] = {};
  cuda::PersistentState* state_ = nullptr;
  std::uint32_t rounds_ = 0;
  bool faulted_ = false;
};

}  // namespace

Result<std::unique_ptr<Executor>> make_cuda_executor(const QueueMemory& memory,
                                                     const ExecutorOptions& options) {
  auto executor = std::make_unique<CudaExecutor>(memory, options);
  if (auto started = executor->start(); !started) return tl::unexpected(started.error());
  return executor;
}

}  // namespace gradwire::reduce
