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
/// Where gradient memory is the host's, a client copies between it and its own GPU memory instead:
/// see HostRegistration and SideStream.
///
/// Any thread; every call may allocate, and may wait for the driver's locks. A lane calls only
/// Event::state(). All other calls may be made while any thread captures a CUDA graph.
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
class HostRegistration;
class SideStream;

/// One CUDA device, in its primary context.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Finds the GPU with that UUID, if CUDA shows it to this process; retains its primary context.
  [[nodiscard]] static Result<std::shared_ptr<Device>> find(const CuUuid& uuid);
  /// The GPU of a primary context, such as the rte_gpu_info::context of a gpu_cuda device. Somebody
  /// else must retain the context as long as the object exists.
  [[nodiscard]] static Result<std::shared_ptr<Device>> of_context(std::uint64_t context);
  /// CUDA's number of the GPU that the memory at `address` belongs to, or is pinned by.
  [[nodiscard]] static Result<int> ordinal_of(const void* address);
  /// The GPU with that number; retains its primary context.
  [[nodiscard]] static Result<std::shared_ptr<Device>> at(int ordinal);
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
  /// One for this process alone.
  [[nodiscard]] Result<std::unique_ptr<Event>> make_own_event();

  /// Pins host memory, so that copies to and from it do not wait for the CPU.
  [[nodiscard]] Result<std::unique_ptr<HostRegistration>> register_host(void* address,
                                                                        std::size_t bytes);
  [[nodiscard]] Result<std::unique_ptr<SideStream>> make_stream();
  /// kUnsupported if `stream` (nullptr: the default stream) is being captured into a CUDA graph:
  /// what it was given would run in the graph's replays alone, or spoil the capture.
  /// @param instead  the end of the error's sentence: what to do
  [[nodiscard]] Result<void> check_not_captured(CuStream stream, const char* instead);

  /// Copies between any two of this GPU's memory, another GPU's memory and host memory, and waits
  /// until it is done.
  [[nodiscard]] Result<void> copy(void* to, const void* from, std::size_t bytes);
  /// The same in the order of `stream` (nullptr: the default stream), without waiting.
  [[nodiscard]] Result<void> copy_on(CuStream stream, void* to, const void* from,
                                     std::size_t bytes);

 private:
  friend class ImportedMemory;
  friend class Event;
  friend class HostRegistration;
  friend class SideStream;
  explicit Device(const CudaApi& api) noexcept : api_(api) {}
  [[nodiscard]] tl::unexpected<Error> error(const char* call, CuResult result) const;
  [[nodiscard]] Result<void> retain(int ordinal);
  [[nodiscard]] Result<std::unique_ptr<Event>> make_event_with(unsigned flags);
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
  /// The same, with CUDA's text if what came before the point failed.
  [[nodiscard]] Result<bool> has_passed() const;
  /// Whatever `stream` is given from now on waits for the point.
  [[nodiscard]] Result<void> hold_back(CuStream stream) const;
  [[nodiscard]] Device& device() const noexcept { return *device_; }

 private:
  friend class SideStream;
  std::shared_ptr<Device> device_;
  CuEvent event_;
};

/// Host memory that CUDA has pinned, for all GPUs. The destructor lets go of it, before the memory
/// may be unmapped; what still copies to or from it must have ended.
class HostRegistration {
 public:
  /// @param address  nullptr: somebody else pinned it, and lets go of it.
  HostRegistration(std::shared_ptr<Device> device, void* address) noexcept
      : device_(std::move(device)), address_(address) {}
  ~HostRegistration();
  HostRegistration(const HostRegistration&) = delete;
  HostRegistration& operator=(const HostRegistration&) = delete;

 private:
  std::shared_ptr<Device> device_;
  void* address_;
};

/// A stream for copies beside the caller's streams. The destructor waits for nothing: CUDA does
/// what the stream was given, and the memory has to stay until then.
class SideStream {
 public:
  SideStream(std::shared_ptr<Device> device, CuStream stream) noexcept
      : device_(std::move(device)), stream_(stream) {}
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  /// What is copied from now on waits for `event`.
  [[nodiscard]] Result<void> wait_for(const Event& event);
  /// A copy that begins when `after` has passed; `done` is the point behind it. Does not wait.
  [[nodiscard]] Result<void> copy(const Event& after, void* to, const void* from, std::size_t bytes,
                                  Event& done);

 private:
  std::shared_ptr<Device> device_;
  CuStream stream_;
};

/// "GPU-0f3c...", as nvidia-smi writes it.
[[nodiscard]] std::string to_string(const CuUuid& uuid);

}  // namespace gradwire::gpu
