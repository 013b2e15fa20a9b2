// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/cuda_device.h"

#include <fmt/format.h>

namespace gradwire::gpu {
namespace {

Result<const CudaApi*> load() {
  std::string why;
  const CudaApi* api = load_cuda(why);
  if (api == nullptr) return fail(ErrorCode::kUnsupported, "CUDA is not available: " + why);
  return api;
}

/// While it exists, a CUDA graph that any thread records does not forbid this thread what CUDA
/// calls unsafe then, such as to look at an event, and is not spoilt by it: nothing that is done
/// here belongs into a graph.
class BesideCaptures {
 public:
  explicit BesideCaptures(const CudaApi& api) noexcept : api_(api) {
    api_.thread_exchange_capture_mode(&mode_);
  }
  ~BesideCaptures() { api_.thread_exchange_capture_mode(&mode_); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  const CudaApi& api_;
  int mode_ = kCaptureModeRelaxed;  ///< afterwards what it was before
};

/// Both, for calls of a client's.
class Entered {
 public:
  Entered(const CudaApi& api, CuContext context) : context_(api, context), beside_(api) {}
  [[nodiscard]] CuResult result() const noexcept { return context_.result(); }

 private:
  CurrentContext context_;
  BesideCaptures beside_;
};

CuDevicePtr device_address(const void* address) noexcept {
  return static_cast<CuDevicePtr>(reinterpret_cast<std::uintptr_t>(address));
}

}  // namespace

std::string to_string(const CuUuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

tl::unexpected<Error> Device::error(const char* call, CuResult result) const {
  return fail(ErrorCode::kSystem,
              fmt::format("{} on {}: {}", call, to_string(uuid_), describe(api_, result)));
}

Result<void> Device::retain(int ordinal) {
  if (const CuResult got = api_.device_get(&device_, ordinal); got != kCuSuccess) {
    return error("cuDeviceGet", got);
  }
  if (const CuResult got = api_.device_get_uuid(&uuid_, device_); got != kCuSuccess) {
    return error("cuDeviceGetUuid", got);
  }
  const BesideCaptures beside(api_);
  const CuResult got = api_.primary_context_retain(&context_, device_);
  if (got != kCuSuccess) return error("cuDevicePrimaryCtxRetain", got);
  retained_ = true;
  const Entered current(api_, context_);
  const CuResult made = api_.stream_create(&stream_, kStreamNonBlocking);
  if (made != kCuSuccess) return error("cuStreamCreate", made);
  return {};
}

Result<std::shared_ptr<Device>> Device::find(const CuUuid& uuid) {
  auto api = load();
  if (!api) return tl::unexpected(api.error());
  const CudaApi& cuda = **api;
  int count = 0;
  if (const CuResult got = cuda.device_get_count(&count); got != kCuSuccess) {
    return fail(ErrorCode::kSystem, "cuDeviceGetCount: " + describe(cuda, got));
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CuDevice device = 0;
    CuUuid its;
    if (cuda.device_get(&device, ordinal) != kCuSuccess ||
        cuda.device_get_uuid(&its, device) != kCuSuccess || its != uuid) {
      continue;
    }
    return at(ordinal);
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("{} is not among the {} GPUs that CUDA shows this process (is it left "
                          "out of CUDA_VISIBLE_DEVICES?)",
                          to_string(uuid), count));
}

Result<int> Device::ordinal_of(const void* address) {
  auto api = load();
  if (!api) return tl::unexpected(api.error());
  int ordinal = -1;
  const CuResult got = (*api)->pointer_get_attribute(&ordinal, kPointerAttributeDeviceOrdinal,
                                                     device_address(address));
  if (got == kCuSuccess) return ordinal;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("CUDA does not know the memory at {}: cuPointerGetAttribute: {}", address,
                          describe(**api, got)));
}

Result<std::shared_ptr<Device>> Device::at(int ordinal) {
  auto api = load();
  if (!api) return tl::unexpected(api.error());
  std::shared_ptr<Device> device(new Device(**api));
  if (auto retained = device->retain(ordinal); !retained) return tl::unexpected(retained.error());
  return device;
}

Result<std::shared_ptr<Device>> Device::of_context(std::uint64_t context) {
  auto api = load();
  if (!api) return tl::unexpected(api.error());
  std::shared_ptr<Device> device(new Device(**api));
  device->context_ = reinterpret_cast<CuContext>(static_cast<std::uintptr_t>(context));
  const Entered current(device->api_, device->context_);
  if (current.result() != kCuSuccess) return device->error("cuCtxPushCurrent", current.result());
  if (const CuResult got = device->api_.context_get_device(&device->device_); got != kCuSuccess) {
    return device->error("cuCtxGetDevice", got);
  }
  if (const CuResult got = device->api_.device_get_uuid(&device->uuid_, device->device_);
      got != kCuSuccess) {
    return device->error("cuDeviceGetUuid", got);
  }
  return device;
}

Device::~Device() {
  if (stream_ != nullptr) {
    const Entered current(api_, context_);
    if (current.result() == kCuSuccess) api_.stream_destroy(stream_);
  }
  if (retained_) api_.primary_context_release(device_);
}

Result<CuIpcHandle> Device::export_memory(const void* address) {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  CuIpcHandle handle;
  const CuResult got = api_.ipc_get_mem_handle(&handle, device_address(address));
  if (got != kCuSuccess) return error("cuIpcGetMemHandle", got);
  return handle;
}

Result<std::unique_ptr<ImportedMemory>> Device::import_memory(const CuIpcHandle& handle,
                                                              std::uint64_t bytes) {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  CuDevicePtr address = 0;
  const CuResult got = api_.ipc_open_mem_handle(&address, handle, kIpcLazyPeerAccess);
  if (got != kCuSuccess) return error("cuIpcOpenMemHandle", got);
  auto memory = std::make_unique<ImportedMemory>(shared_from_this(), address);
  CuDevicePtr base = 0;
  std::size_t size = 0;
  if (const CuResult range = api_.mem_get_address_range(&base, &size, address);
      range != kCuSuccess) {
    return error("cuMemGetAddressRange", range);
  }
  if (base + size - address < bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("memory of {} that should have {} bytes has {}", to_string(uuid_),
                            bytes, base + size - address));
  }
  return memory;
}

Result<std::unique_ptr<Event>> Device::make_event_with(unsigned flags) {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  CuEvent event = nullptr;
  const CuResult got = api_.event_create(&event, flags);
  if (got != kCuSuccess) return error("cuEventCreate", got);
  return std::make_unique<Event>(shared_from_this(), event);
}

Result<std::unique_ptr<Event>> Device::make_event() {
  return make_event_with(kEventInterprocess | kEventDisableTiming);
}

Result<std::unique_ptr<Event>> Device::make_own_event() {
  return make_event_with(kEventDisableTiming);
}

Result<std::unique_ptr<HostRegistration>> Device::register_host(void* address, std::size_t bytes) {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  const CuResult got = api_.host_register(address, bytes, kHostRegisterPortable);
  if (got != kCuSuccess && got != kCuHostMemoryAlreadyRegistered) {
    return error("cuMemHostRegister", got);
  }
  return std::make_unique<HostRegistration>(shared_from_this(),
                                            got == kCuSuccess ? address : nullptr);
}

Result<std::unique_ptr<SideStream>> Device::make_stream() {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  CuStream stream = nullptr;
  const CuResult got = api_.stream_create(&stream, kStreamNonBlocking);
  if (got != kCuSuccess) return error("cuStreamCreate", got);
  return std::make_unique<SideStream>(shared_from_this(), stream);
}

Result<std::unique_ptr<Event>> Device::import_event(const CuIpcHandle& handle) {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  CuEvent event = nullptr;
  const CuResult got = api_.ipc_open_event_handle(&event, handle);
  if (got != kCuSuccess) return error("cuIpcOpenEventHandle", got);
  return std::make_unique<Event>(shared_from_this(), event);
}

Result<void> Device::copy_in_context(CuStream stream, void* to, const void* from,
                                     std::size_t bytes) {
  const CuResult got = api_.memcpy_async(device_address(to), device_address(from), bytes, stream);
  if (got != kCuSuccess) return error("cuMemcpyAsync", got);
  return {};
}

Result<void> Device::copy_on(CuStream stream, void* to, const void* from, std::size_t bytes) {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  return copy_in_context(stream, to, from, bytes);
}

Result<void> Device::copy(void* to, const void* from, std::size_t bytes) {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  // This also waits for other threads' copies on the stream, which end too.
  Result<void> done = copy_in_context(stream_, to, from, bytes);
  const CuResult ended = api_.stream_synchronize(stream_);
  if (done && ended != kCuSuccess) done = error("cuStreamSynchronize", ended);
  return done;
}

ImportedMemory::~ImportedMemory() {
  const Entered current(device_->api_, device_->context_);
  if (current.result() == kCuSuccess) device_->api_.ipc_close_mem_handle(address_);
}

Event::~Event() {
  const Entered current(device_->api_, device_->context_);
  if (current.result() == kCuSuccess) device_->api_.event_destroy(event_);
}

Result<CuIpcHandle> Event::handle() const {
  const Entered current(device_->api_, device_->context_);
  if (current.result() != kCuSuccess) return device_->error("cuCtxPushCurrent", current.result());
  CuIpcHandle handle;
  const CuResult got = device_->api_.ipc_get_event_handle(&handle, event_);
  if (got != kCuSuccess) return device_->error("cuIpcGetEventHandle", got);
  return handle;
}

Result<void> Event::record(CuStream stream) {
  const Entered current(device_->api_, device_->context_);
  if (current.result() != kCuSuccess) return device_->error("cuCtxPushCurrent", current.result());
  const CuResult got = device_->api_.event_record(event_, stream);
  if (got != kCuSuccess) return device_->error("cuEventRecord", got);
  return {};
}

Result<bool> Event::has_passed() const {
  const Entered current(device_->api_, device_->context_);
  if (current.result() != kCuSuccess) return device_->error("cuCtxPushCurrent", current.result());
  const CuResult got = device_->api_.event_query(event_);
  if (got == kCuSuccess) return true;
  if (got == kCuNotReady) return false;
  return device_->error("cuEventQuery", got);
}

Result<void> Event::hold_back(CuStream stream) const {
  const Entered current(device_->api_, device_->context_);
  if (current.result() != kCuSuccess) return device_->error("cuCtxPushCurrent", current.result());
  const CuResult got = device_->api_.stream_wait_event(stream, event_, 0);
  if (got != kCuSuccess) return device_->error("cuStreamWaitEvent", got);
  return {};
}

Event::State Event::state() const noexcept {
  const CurrentContext current(device_->api_, device_->context_);
  if (current.result() != kCuSuccess) return State::kFailed;
  const CuResult got = device_->api_.event_query(event_);
  if (got == kCuSuccess) return State::kPassed;
  return got == kCuNotReady ? State::kPending : State::kFailed;
}

Result<void> Device::check_not_captured(CuStream stream, const char* instead) {
  const Entered current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  int status = kCaptureStatusNone;
  const CuResult got = api_.stream_is_capturing(stream, &status);
  if (got == kCuStreamCaptureImplicit) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a stream is being captured into a CUDA graph, and nothing can be done "
                            "on the default stream meanwhile: {}",
                            instead));
  }
  if (got != kCuSuccess) return error("cuStreamIsCapturing", got);
  if (status == kCaptureStatusNone) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("the stream is being captured into a CUDA graph, which cannot have an op "
                          "of gradwire in it: {}",
                          instead));
}

HostRegistration::~HostRegistration() {
  if (address_ == nullptr) return;
  const Entered current(device_->api_, device_->context_);
  if (current.result() == kCuSuccess) device_->api_.host_unregister(address_);
}

SideStream::~SideStream() {
  const Entered current(device_->api_, device_->context_);
  if (current.result() == kCuSuccess) device_->api_.stream_destroy(stream_);
}

Result<void> SideStream::wait_for(const Event& event) { return event.hold_back(stream_); }

Result<void> SideStream::copy(const Event& after, void* to, const void* from, std::size_t bytes,
                              Event& done) {
  if (auto held = after.hold_back(stream_); !held) return held;
  if (auto copied = device_->copy_on(stream_, to, from, bytes); !copied) return copied;
  return done.record(stream_);
}

}  // namespace gradwire::gpu
