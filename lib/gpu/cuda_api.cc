// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/cuda_api.h"

#include <dlfcn.h>

#include <cerrno>

#if __has_include(<cuda.h>)
#include <cuda.h>
static_assert(gradwire::gpu::kCuInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(gradwire::gpu::kCuOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(gradwire::gpu::kCuHostMemoryAlreadyRegistered ==
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(gradwire::gpu::kCuHostMemoryNotRegistered == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
static_assert(gradwire::gpu::kCuNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(gradwire::gpu::kCuStreamCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(gradwire::gpu::kCaptureStatusNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(gradwire::gpu::kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(gradwire::gpu::kAttributeMultiprocessorCount ==
              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(gradwire::gpu::kAttributeCanUseHostPointer ==
              CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
static_assert(gradwire::gpu::kAttributeGpuDirectRdma ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
static_assert(gradwire::gpu::kAttributeRdmaFlushOptions ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
static_assert(gradwire::gpu::kAttributeRdmaWritesOrdering ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
static_assert(gradwire::gpu::kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(gradwire::gpu::kHostRegisterDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(gradwire::gpu::kPointerAttributeSyncMemops == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
static_assert(gradwire::gpu::kPointerAttributeDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(gradwire::gpu::kFlushOptionHost == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
static_assert(gradwire::gpu::kWritesOrderingNone == CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE);
static_assert(gradwire::gpu::kFlushTargetCurrentContext ==
              CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
static_assert(gradwire::gpu::kFlushToAllDevices == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
static_assert(gradwire::gpu::kCuNotReady == CUDA_ERROR_NOT_READY);
static_assert(gradwire::gpu::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(gradwire::gpu::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(gradwire::gpu::kEventInterprocess == CU_EVENT_INTERPROCESS);
static_assert(gradwire::gpu::kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(sizeof(gradwire::gpu::CuUuid) == sizeof(CUuuid));
static_assert(sizeof(gradwire::gpu::CuIpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(gradwire::gpu::CuIpcHandle) == sizeof(CUipcEventHandle));
static_assert(sizeof(gradwire::gpu::CuDevicePtr) == sizeof(CUdeviceptr));
#endif

namespace gradwire::gpu {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <class Function>
bool find(void* library, const char* name, Function& out, std::string& why) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  if (out == nullptr) why = std::string(kLibrary) + " has no " + name;
  return out != nullptr;
}

bool load(CudaApi& api, std::string& why) {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    why = error == nullptr ? std::string(kLibrary) + " cannot be loaded" : error;
    return false;
  }
  // The names under which cuda.h calls these functions. A suffix marks a later version of a
  // function.
  return find(library, "cuInit", api.init, why) &&
         find(library, "cuGetErrorName", api.get_error_name, why) &&
         find(library, "cuGetErrorString", api.get_error_string, why) &&
         find(library, "cuDeviceGet", api.device_get, why) &&
         find(library, "cuDeviceGetCount", api.device_get_count, why) &&
         find(library, "cuDeviceGetByPCIBusId", api.device_get_by_pci_bus_id, why) &&
         find(library, "cuDeviceGetPCIBusId", api.device_get_pci_bus_id, why) &&
         find(library, "cuDeviceGetAttribute", api.device_get_attribute, why) &&
         find(library, "cuDeviceGetName", api.device_get_name, why) &&
         find(library, "cuDeviceTotalMem_v2", api.device_total_mem, why) &&
         find(library, "cuDevicePrimaryCtxRetain", api.primary_context_retain, why) &&
         find(library, "cuDevicePrimaryCtxRelease_v2", api.primary_context_release, why) &&
         find(library, "cuCtxPushCurrent_v2", api.context_push, why) &&
         find(library, "cuCtxPopCurrent_v2", api.context_pop, why) &&
         find(library, "cuCtxSynchronize", api.context_synchronize, why) &&
         find(library, "cuMemAlloc_v2", api.mem_alloc, why) &&
         find(library, "cuMemFree_v2", api.mem_free, why) &&
         find(library, "cuMemsetD8_v2", api.memset_d8, why) &&
         find(library, "cuMemHostRegister_v2", api.host_register, why) &&
         find(library, "cuMemHostUnregister", api.host_unregister, why) &&
         find(library, "cuMemHostGetDevicePointer_v2", api.host_get_device_pointer, why) &&
         find(library, "cuPointerSetAttribute", api.pointer_set_attribute, why) &&
         find(library, "cuPointerGetAttribute", api.pointer_get_attribute, why) &&
         find(library, "cuFlushGPUDirectRDMAWrites", api.flush_rdma_writes, why) &&
         find(library, "cuDeviceGetUuid_v2", api.device_get_uuid, why) &&
         find(library, "cuCtxGetDevice", api.context_get_device, why) &&
         find(library, "cuMemGetAddressRange_v2", api.mem_get_address_range, why) &&
         find(library, "cuMemcpyAsync", api.memcpy_async, why) &&
         find(library, "cuStreamCreate", api.stream_create, why) &&
         find(library, "cuStreamDestroy_v2", api.stream_destroy, why) &&
         find(library, "cuStreamSynchronize", api.stream_synchronize, why) &&
         find(library, "cuStreamWaitEvent", api.stream_wait_event, why) &&
         find(library, "cuStreamIsCapturing", api.stream_is_capturing, why) &&
         find(library, "cuThreadExchangeStreamCaptureMode", api.thread_exchange_capture_mode,
              why) &&
         find(library, "cuEventCreate", api.event_create, why) &&
         find(library, "cuEventDestroy_v2", api.event_destroy, why) &&
         find(library, "cuEventRecord", api.event_record, why) &&
         find(library, "cuEventQuery", api.event_query, why) &&
         find(library, "cuIpcGetMemHandle", api.ipc_get_mem_handle, why) &&
         find(library, "cuIpcOpenMemHandle_v2", api.ipc_open_mem_handle, why) &&
         find(library, "cuIpcCloseMemHandle", api.ipc_close_mem_handle, why) &&
         find(library, "cuIpcGetEventHandle", api.ipc_get_event_handle, why) &&
         find(library, "cuIpcOpenEventHandle", api.ipc_open_event_handle, why);
}

}  // namespace

const CudaApi* load_cuda(std::string& why) {
  struct Loaded {
    CudaApi api{};
    std::string why;
    bool ok = false;
  };
  static const Loaded loaded = [] {
    Loaded out;
    out.ok = load(out.api, out.why);
    if (!out.ok) return out;
    const CuResult result = out.api.init(0);
    out.ok = result == kCuSuccess;
    if (!out.ok) out.why = "cuInit: " + describe(out.api, result);
    return out;
  }();
  why = loaded.why;
  return loaded.ok ? &loaded.api : nullptr;
}

std::string describe(const CudaApi& api, CuResult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.get_error_name(result, &name) != kCuSuccess || name == nullptr) name = "CUDA error";
  if (api.get_error_string(result, &text) != kCuSuccess || text == nullptr) text = "unknown";
  return std::string(name) + " (" + std::to_string(result) + "): " + text;
}

int to_errno(CuResult result) noexcept {
  switch (result) {
    case kCuSuccess:
      return 0;
    case kCuInvalidValue:
    case kCuHostMemoryNotRegistered:
      return -EINVAL;
    case kCuOutOfMemory:
      return -ENOMEM;
    case kCuHostMemoryAlreadyRegistered:
      return -EEXIST;
    case kCuNotSupported:
      return -ENOTSUP;
    default:
      return -EIO;
  }
}

}  // namespace gradwire::gpu
