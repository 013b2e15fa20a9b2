// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The GPU that a daemon reduces on, through DPDK's gpudev API: finds it, decides how payloads
/// reach it, registers host memory with it, and makes the lanes' queues. The control thread owns it
/// and makes every call except write_barrier(), and register_host() and unregister_host(), which
/// the worker may call too: then the control thread waits for it.
///
/// It does not rely on two parts of DPDK 22.11's gpudev library: the errno of most of its calls,
/// which is always EPERM (the driver's log has the cause), and its communication lists, which read
/// their status without a fence and lose their packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sections.h"
#include "gpu/cuda_device.h"
#include "reduce/device_memory.h"
#include "reduce/gpu/executor.h"
#include "reduce/gpu/queue.h"
#include "reduce/ready_event.h"

namespace gradwire::reduce {

/// What the configuration asks for; PayloadPath is what is used.
enum class Staging : std::uint8_t { kCopy, kMapped, kGpuDirect, kAuto };

struct GpuOptions {
  GpuOptions() : GpuOptions(GpuSection{}) {}
  explicit GpuOptions(const GpuSection& keys)
      : device(keys.device),
        staging(keys.staging == "mapped"      ? Staging::kMapped
                : keys.staging == "gpudirect" ? Staging::kGpuDirect
                : keys.staging == "auto"      ? Staging::kAuto
                                              : Staging::kCopy),
        kernel(keys.kernel == "persistent" ? KernelMode::kPersistent : KernelMode::kLaunch),
        persistent_sms(static_cast<std::uint32_t>(keys.persistent_sms)),
        client_memory(keys.client_memory == "gpu") {}

  std::string device;  ///< gpudev name: "gpu_emu0", "gpu_cuda0", or a PCI address
  Staging staging = Staging::kCopy;
  KernelMode kernel = KernelMode::kLaunch;
  std::uint32_t persistent_sms = 0;
  bool client_memory = false;  ///< clients' gradient memory is made on the GPU
  /// Why ports cannot receive into its memory; empty if they can.
  std::string why_no_gpudirect = "no port receives payloads into GPU memory";
  friend bool operator==(const GpuOptions&, const GpuOptions&) = default;
};

/// With it another process opens memory of a CUDA device.
struct CudaExport {
  gpu::CuUuid uuid;
  gpu::CuIpcHandle handle;
};

/// GPU memory that another process can map.
struct SharedGpuMemory {
  std::byte* address = nullptr;  ///< the GPU's
  std::size_t bytes = 0;
  int fd = -1;  ///< emulated: a file whose whole content is the memory; the receiver closes it
  std::optional<CudaExport> cuda;
};

/// An event that a client records on one of its streams.
struct SharedReadyEvent {
  std::unique_ptr<ReadyEvent> event;
  gpu::CuIpcHandle handle;
};

class GpuDevice final : public DeviceMemory {
 public:
  [[nodiscard]] static Result<std::unique_ptr<GpuDevice>> open(const GpuOptions& options);
  /// All queues and registered memory must have been released before.
  ~GpuDevice() override;
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  /// Closes the device in the EAL too; its driver logs what was not released. No other call may
  /// follow.
  void close() noexcept;

  /// For Staging::kAuto after kGpuDirect was chosen: chooses the next path, because the ports
  /// turned out to be unable.
  [[nodiscard]] Result<void> fall_back(const std::string& why_no_gpudirect);

  /// Lets kernels use the host's memory at [address, address + bytes).
  /// @param what  names it in an error.
  [[nodiscard]] Result<void> register_host(void* address, std::size_t bytes,
                                           const std::string& what);
  void unregister_host(void* address) noexcept;

  [[nodiscard]] const std::string& name() const noexcept override { return options_.device; }
  [[nodiscard]] std::size_t page_bytes() const noexcept override { return page_bytes_; }
  /// "emu" or "cuda": the backend's name in counters.
  [[nodiscard]] const char* kind() const noexcept { return emulated_ ? "emu" : "cuda"; }
  [[nodiscard]] PayloadPath path() const noexcept { return path_; }
  [[nodiscard]] int numa_node() const noexcept { return numa_node_; }
  /// Lines for the report at start.
  [[nodiscard]] std::vector<std::string> facts() const;
  /// What was not possible, and what is used instead.
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  [[nodiscard]] bool makes_client_memory() const noexcept { return options_.client_memory; }
  /// Gradient memory for a client; release it with free().
  [[nodiscard]] Result<SharedGpuMemory> allocate_shared(std::size_t bytes);
  /// For a CUDA device on which clients' memory is made; an emulated device has no streams.
  [[nodiscard]] Result<SharedReadyEvent> make_ready_event();

  // For queues and mempools of payloads.
  /// @param what  it is for, for an error.
  [[nodiscard]] Result<void*> allocate_host(std::size_t bytes, const char* what);
  void free_host(void* memory) noexcept;
  [[nodiscard]] Result<std::byte*> allocate(std::size_t bytes, std::uint32_t align) override;
  void free(std::byte* memory) noexcept override;
  [[nodiscard]] Result<std::byte*> map_for_cpu(std::byte* memory, std::size_t bytes) override;
  void unmap_for_cpu(std::byte* memory) noexcept override;
  [[nodiscard]] Result<std::unique_ptr<Executor>> make_executor(const QueueMemory& memory);
  void add(GpuQueue& queue) { queues_.push_back(&queue); }
  void remove(GpuQueue& queue) noexcept;
  /// Called by lanes: what the CPU wrote through mappings before, and what ports had written into
  /// GPU memory, is visible to kernels that start afterwards. @return false if that failed.
  [[nodiscard]] bool write_barrier() noexcept;

 private:
  /// While it exists no persistent kernel runs, so that calls that wait for kernels return.
  class Quiet;
  explicit GpuDevice(const GpuOptions& options) : options_(options) {}
  [[nodiscard]] Result<void> find();
  [[nodiscard]] Result<void> choose_path();
  /// @return why payloads cannot lie in its memory; empty if they can.
  [[nodiscard]] std::string why_not_gpudirect(const std::string& why_not_mapping) const;
  /// @return why the CPU cannot write its memory through a mapping; empty if it can.
  [[nodiscard]] Result<std::string> why_not_cpu_mapping() const;
  [[nodiscard]] Result<void> check_sharing();
  [[nodiscard]] Result<SharedGpuMemory> share(SharedGpuMemory memory);
  [[nodiscard]] std::string error_text(const std::string& what) const;

  GpuOptions options_;
  std::int16_t id_ = -1;
  bool emulated_ = false;
  std::uint64_t context_ = 0;
  std::uint32_t processors_ = 0;
  std::size_t memory_bytes_ = 0;
  std::size_t page_bytes_ = 4096;
  int numa_node_ = -1;
  PayloadPath path_ = PayloadPath::kMapped;
  std::string path_reason_;
  std::vector<std::string> warnings_;
  std::vector<GpuQueue*> queues_;
  std::mutex quiet_;                   ///< held by a Quiet
  std::shared_ptr<gpu::Device> cuda_;  ///< set if clients' memory is made on a CUDA device
};

}  // namespace gradwire::reduce
