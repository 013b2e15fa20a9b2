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

Result<std::shared_ptr<Device>> Device::find(const CuUuid& uuid) {
  auto api = load();
  if (!api) return tl::unexpected(api.error());
  const CudaApi& cuda = **api;
  int count = 0;
  if (const CuResult got = cuda.device_get_count(&count); got != kCuSuccess) {
    return fail(ErrorCode::kSystem, "cuDeviceGetCount: " + describe(cuda, got));
  }
  std::shared_ptr<Device> device(new Device(cuda));
  for (int ordinal = 0; ordinal < count && device->context_ == nullptr; ++ordinal) {
    if (cuda.device_get(&device->device_, ordinal) != kCuSuccess ||
        cuda.device_get_uuid(&device->uuid_, device->device_) != kCuSuccess ||
        device->uuid_ != uuid) {
      continue;
    }
    const CuResult got = cuda.primary_context_retain(&device->context_, device->device_);
    if (got != kCuSuccess) return device->error("cuDevicePrimaryCtxRetain", got);
    device->retained_ = true;
  }
  if (device->context_ != nullptr) {
    const CurrentContext current(cuda, device->context_);
    const CuResult got = cuda.stream_create(&device->stream_, kStreamNonBlocking);
    if (got != kCuSuccess) return device->error("cuStreamCreate", got);
    return device;
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("{} is not among the {} GPUs that CUDA shows this process (is it left "
                          "out of CUDA_VISIBLE_DEVICES?)",
                          to_string(uuid), count));
}

Result<std::shared_ptr<Device>> Device::of_context(std::uint64_t context) {
  auto api = load();
  if (!api) return tl::unexpected(api.error());
  std::shared_ptr<Device> device(new Device(**api));
  device->context_ = reinterpret_cast<CuContext>(static_cast<std::uintptr_t>(context));
  const CurrentContext current(device->api_, device->context_);
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
    const CurrentContext current(api_, context_);
    if (current.result() == kCuSuccess) api_.stream_destroy(stream_);
  }
  if (retained_) api_.primary_context_release(device_);
}

Result<CuIpcHandle> Device::export_memory(const void* address) {
  const CurrentContext current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  CuIpcHandle handle;
  const CuResult got = api_.ipc_get_mem_handle(&handle, device_address(address));
  if (got != kCuSuccess) return error("cuIpcGetMemHandle", got);
  return handle;
}

Result<std::unique_ptr<ImportedMemory>> Device::import_memory(const CuIpcHandle& handle,
                                                              std::uint64_t bytes) {
  const CurrentContext current(api_, context_);
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

Result<std::unique_ptr<Event>> Device::make_event() {
  const CurrentContext current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  CuEvent event = nullptr;
  const CuResult got = api_.event_create(&event, kEventInterprocess | kEventDisableTiming);
  if (got != kCuSuccess) return error("cuEventCreate", got);
  return std::make_unique<Event>(shared_from_this(), event);
}

Result<std::unique_ptr<Event>> Device::import_event(const CuIpcHandle& handle) {
  const CurrentContext current(api_, context_);
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
  const CurrentContext current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  return copy_in_context(stream, to, from, bytes);
}

Result<void> Device::copy(void* to, const void* from, std::size_t bytes) {
  const CurrentContext current(api_, context_);
  if (current.result() != kCuSuccess) return error("cuCtxPushCurrent", current.result());
  // This also waits for other threads' copies on the stream, which end too.
  Result<void> done = copy_in_context(stream_, to, from, bytes);
  const CuResult ended = api_.stream_synchronize(stream_);
  if (done && ended != kCuSuccess) done = error("cuStreamSynchronize", ended);
  return done;
}

ImportedMemory::~ImportedMemory() {
  const CurrentContext current(device_->api_, device_->context_);
  if (current.result() == kCuSuccess) device_->api_.ipc_close_mem_handle(address_);
}

Event::~Event() {
  const CurrentContext current(device_->api_, device_->context_);
  if (current.result() == kCuSuccess) device_->api_.event_destroy(event_);
}

Result<CuIpcHandle> Event::handle() const {
  const CurrentContext current(device_->api_, device_->context_);
  if (current.result() != kCuSuccess) return device_->error("cuCtxPushCurrent", current.result());
  CuIpcHandle handle;
  const CuResult got = device_->api_.ipc_get_event_handle(&handle, event_);
  if (got != kCuSuccess) return device_->error("cuIpcGetEventHandle", got);
  return handle;
}

Result<void> Event::record(CuStream stream) {
  const CurrentContext current(device_->api_, device_->context_);
  if (current.result() != kCuSuccess) return device_->error("cuCtxPushCurrent", current.result());
  const CuResult got = device_->api_.event_record(event_, stream);
  if (got != kCuSuccess) return device_->error("cuEventRecord", got);
  return {};
}

Event::State Event::state() const noexcept {
  const CurrentContext current(device_->api_, device_->context_);
  if (current.result() != kCuSuccess) return State::kFailed;
  const CuResult got = device_->api_.event_query(event_);
  if (got == kCuSuccess) return State::kPassed;
  return got == kCuNotReady ? State::kPending : State::kFailed;
}

}  // namespace gradwire::gpu
