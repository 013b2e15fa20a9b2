// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// GPU memory and events that a daemon and its clients share by CUDA IPC. The daemon makes both,
/// memory with its gpudev driver, and exports them; clients open them, into the primary context of
/// the same GPU, which they find by its UUID. So the daemon never depends on what a client owns: a
/// client that dies takes nothing with it that the daemon uses.
///
/// CUDA wants an importer to have closed memory before its exporter frees it, so a client closes
/// first and says so then.
///
/// Any thread; every call may allocate, and may wait for the driver's locks. Event::state() is the
/// one call that a lane makes.
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
  /// The GPU of that UUID, if CUDA shows it to this process; retains its primary context.
  [[nodiscard]] static Result<std::shared_ptr<Device>> find(const CuUuid& uuid);
  /// The GPU of a primary context that somebody else retains for as long as the object lives:
  /// rte_gpu_info::context of a gpu_cuda device.
  [[nodiscard]] static Result<std::shared_ptr<Device>> of_context(std::uint64_t context);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// CUDA's number for it in this process.
  [[nodiscard]] int ordinal() const noexcept { return device_; }
  [[nodiscard]] const CuUuid& uuid() const noexcept { return uuid_; }

  /// @param address  of a whole allocation of cuMemAlloc, its size a multiple of kExportBytes.
  [[nodiscard]] Result<CuIpcHandle> export_memory(const void* address);
  /// CUDA hands out the whole block of memory that an allocation lies in: one that fills its blocks
  /// shows nothing else.
  static constexpr std::size_t kExportBytes = 2u << 20;
  /// @param bytes  that the exporter says there are; less is an error.
  [[nodiscard]] Result<std::unique_ptr<ImportedMemory>> import_memory(const CuIpcHandle& handle,
                                                                      std::uint64_t bytes);
  /// An event that other processes can open.
  [[nodiscard]] Result<std::unique_ptr<Event>> make_event();
  [[nodiscard]] Result<std::unique_ptr<Event>> import_event(const CuIpcHandle& handle);

  /// Copies between any two of this GPU's, another GPU's and host memory, and waits for the end.
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
  CuStream stream_ = nullptr;  ///< of copy()
};

/// Memory of another process's. The destructor closes it.
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

/// A point in a stream, for another process to see passed.
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
  /// Of the last mark, whoever set it; kPassed before the first. Does not wait.
  [[nodiscard]] State state() const noexcept;

 private:
  std::shared_ptr<Device> device_;
  CuEvent event_;
};

/// "GPU-0f3c...", as nvidia-smi writes it.
[[nodiscard]] std::string to_string(const CuUuid& uuid);

}  // namespace gradwire::gpu
