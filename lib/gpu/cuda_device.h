// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// GPU memory and events that a daemon and its clients share by CUDA IPC. The daemon makes both,
/// memory with its gpudev driver, and exports them; clients open them, into the primary context of
/// the same GPU, which they find by its UUID. So the daemon never depends on anything that a client
/// owns and could take with it when it dies.
///
/// CUDA requires that an importer closes memory before its exporter frees it, so a client closes it
/// first and then tells the daemon.
///
/// Any thread; every call may allocate, and may wait for the driver's locks. A lane calls only
/// Event::state().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "gpu/cuda_api.h"

namespace gradwire::gpu {

class ImportedMemory;
class Event;

/// One CUDA device, in its primary context.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Finds the GPU with that UUID, if CUDA shows it to this process; retains its primary context.
  [[nodiscard]] static Result<std::shared_ptr<Device>> find(const CuUuid& uuid);
  /// The GPU of a primary context, such as the rte_gpu_info::context of a gpu_cuda device. Somebody
  /// else must retain the context as long as the object exists.
  [[nodiscard]] static Result<std::shared_ptr<Device>> of_context(std::uint64_t context);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// CUDA's number for it in this process.
  [[nodiscard]] int ordinal() const noexcept { return device_; }
  [[nodiscard]] const CuUuid& uuid() const noexcept { return uuid_; }

  /// @param address the start of an allocation by cuMemAlloc, whose size is a multiple of
  /// kExportBytes.
  [[nodiscard]] Result<CuIpcHandle> export_memory(const void* address);
  /// CUDA exports the whole block of memory that contains an allocation. An allocation that fills
  /// its blocks exposes nothing else.
  static constexpr std::size_t kExportBytes = 2u << 20;
  /// @param bytes the size according to the exporter; if the memory is smaller, that is an error.
  [[nodiscard]] Result<std::unique_ptr<ImportedMemory>> import_memory(const CuIpcHandle& handle,
                                                                      std::uint64_t bytes);
  /// An event that other processes can open.
  [[nodiscard]] Result<std::unique_ptr<Event>> make_event();
  [[nodiscard]] Result<std::unique_ptr<Event>> import_event(const CuIpcHandle& handle);

  /// Copies between any two of this GPU's memory, another GPU's memory and host memory, and waits
  /// until it is done.
  [[nodiscard]] Result<void> copy(void* to, const void* from, std::size_t bytes);
  /// The same in the order of `stream` (nullptr: the default stream), without waiting.
  [[nodiscard]] Result<void> copy_on(CuStream stream, void* to, const void* from,
                                     std::size_t bytes);

 private:
  friend class ImportedMemory;
  friend class Event;
  explicit Device(const CudaApi& api) noexcept : api_(api) {}
  [[nodiscard]] tl::unexpected<Error> error(const char* call, CuResult result) const;
  [[nodiscard]] Result<void> copy_in_context(CuStream stream, void* to, const void* from,
                                             std::size_t bytes);

  const CudaApi& api_;
  CuDevice device_ = 0;
  CuUuid uuid_;
  CuContext context_ = nullptr;
  bool retained_ = false;
  CuStream stream_ = nullptr;  ///< for copy()
};

/// Memory that another process exported. The destructor closes it.
class ImportedMemory {
 public:
  ImportedMemory(std::shared_ptr<Device> device, CuDevicePtr address) noexcept
      : device_(std::move(device)), address_(address) {}
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;

  [[nodiscard]] std::byte* address() const noexcept {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address_));
  }
  [[nodiscard]] Device& device() const noexcept { return *device_; }

 private:
  std::shared_ptr<Device> device_;
  CuDevicePtr address_;
};

/// A point in a stream; other processes can see when the stream has passed it.
class Event {
 public:
  enum class State : std::uint8_t { kPending, kPassed, kFailed };

  Event(std::shared_ptr<Device> device, CuEvent event) noexcept
      : device_(std::move(device)), event_(event) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] Result<CuIpcHandle> handle() const;
  /// Marks the end of what `stream` (nullptr: the default stream) has been given so far.
  [[nodiscard]] Result<void> record(CuStream stream);
  /// The state of the point that was recorded last, by any process; kPassed before the first. Does
  /// not wait.
  [[nodiscard]] State state() const noexcept;

 private:
  std::shared_ptr<Device> device_;
  CuEvent event_;
};

/// "GPU-0f3c...", as nvidia-smi writes it.
[[nodiscard]] std::string to_string(const CuUuid& uuid);

}  // namespace gradwire::gpu
