// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The part of CUDA's driver API that gpu_cuda, the daemon and the client library call, loaded from
/// libcuda.so.1 when it is first needed: so all of them build without CUDA's headers, and run on
/// hosts without a GPU. The declarations follow the CUDA Driver API reference; if cuda.h is present
/// at build time, cuda_api.cc compares every number with it. Any thread. load_cuda() allocates; the
/// functions stay for the life of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gradwire::gpu {

using CuResult = int;
using CuDevice = int;
using CuContext = void*;
using CuDevicePtr = unsigned long long;
using CuStream = void*;
using CuEvent = void*;

struct CuUuid {
  unsigned char bytes[16] = {};
  friend bool operator==(const CuUuid&, const CuUuid&) = default;
};
/// CUDA's handle of memory or of an event, for another process to open. Opaque.
struct CuIpcHandle {
  unsigned char bytes[64] = {};
};

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuInvalidValue = 1;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuNotReady = 600;
inline constexpr CuResult kCuHostMemoryAlreadyRegistered = 712;
inline constexpr CuResult kCuHostMemoryNotRegistered = 713;
inline constexpr CuResult kCuNotSupported = 801;
inline constexpr CuResult kCuStreamCaptureImplicit = 906;

inline constexpr int kAttributeMultiprocessorCount = 16;
inline constexpr int kAttributeCanUseHostPointer = 91;
inline constexpr int kAttributeGpuDirectRdma = 116;
inline constexpr int kAttributeRdmaFlushOptions = 117;
inline constexpr int kAttributeRdmaWritesOrdering = 118;

inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr int kPointerAttributeSyncMemops = 6;
inline constexpr int kPointerAttributeDeviceOrdinal = 9;
inline constexpr int kFlushOptionHost = 1;
inline constexpr int kWritesOrderingNone = 0;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventInterprocess = 4;
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr int kFlushTargetCurrentContext = 0;
inline constexpr int kFlushToAllDevices = 200;

struct CudaApi {
  CuResult (*init)(unsigned flags);
  CuResult (*get_error_name)(CuResult, const char**);
  CuResult (*get_error_string)(CuResult, const char**);
  CuResult (*device_get)(CuDevice*, int ordinal);
  CuResult (*device_get_count)(int*);
  CuResult (*device_get_by_pci_bus_id)(CuDevice*, const char*);
  CuResult (*device_get_pci_bus_id)(char*, int bytes, CuDevice);
  CuResult (*device_get_attribute)(int*, int attribute, CuDevice);
  CuResult (*device_get_name)(char*, int bytes, CuDevice);
  CuResult (*device_total_mem)(std::size_t*, CuDevice);
  CuResult (*primary_context_retain)(CuContext*, CuDevice);
  CuResult (*primary_context_release)(CuDevice);
  CuResult (*context_push)(CuContext);
  CuResult (*context_pop)(CuContext*);
  CuResult (*context_synchronize)();
  CuResult (*mem_alloc)(CuDevicePtr*, std::size_t);
  CuResult (*mem_free)(CuDevicePtr);
  CuResult (*memset_d8)(CuDevicePtr, unsigned char, std::size_t);
  CuResult (*host_register)(void*, std::size_t, unsigned flags);
  CuResult (*host_unregister)(void*);
  CuResult (*host_get_device_pointer)(CuDevicePtr*, void*, unsigned flags);
  CuResult (*pointer_set_attribute)(const void*, int attribute, CuDevicePtr);
  CuResult (*pointer_get_attribute)(void*, int attribute, CuDevicePtr);
  CuResult (*flush_rdma_writes)(int target, int scope);
  CuResult (*device_get_uuid)(CuUuid*, CuDevice);
  CuResult (*context_get_device)(CuDevice*);
  CuResult (*mem_get_address_range)(CuDevicePtr* base, std::size_t* bytes, CuDevicePtr);
  CuResult (*memcpy_async)(CuDevicePtr to, CuDevicePtr from, std::size_t, CuStream);
  CuResult (*stream_create)(CuStream*, unsigned flags);
  CuResult (*stream_destroy)(CuStream);
  CuResult (*stream_synchronize)(CuStream);
  CuResult (*stream_wait_event)(CuStream, CuEvent, unsigned flags);
  CuResult (*stream_is_capturing)(CuStream, int* status);
  CuResult (*thread_exchange_capture_mode)(int* mode);
  CuResult (*event_create)(CuEvent*, unsigned flags);
  CuResult (*event_destroy)(CuEvent);
  CuResult (*event_record)(CuEvent, CuStream);
  CuResult (*event_query)(CuEvent);
  CuResult (*ipc_get_mem_handle)(CuIpcHandle*, CuDevicePtr);
  CuResult (*ipc_open_mem_handle)(CuDevicePtr*, CuIpcHandle, unsigned flags);
  CuResult (*ipc_close_mem_handle)(CuDevicePtr);
  CuResult (*ipc_get_event_handle)(CuIpcHandle*, CuEvent);
  CuResult (*ipc_open_event_handle)(CuEvent*, CuIpcHandle);
};

/// @return nullptr if the library or one of its functions is missing; `why` says which.
[[nodiscard]] const CudaApi* load_cuda(std::string& why);

/// "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
[[nodiscard]] std::string describe(const CudaApi& api, CuResult result);

/// Makes the device's context current in the calling thread while the object exists.
class CurrentContext {
 public:
  CurrentContext(const CudaApi& api, CuContext context)
      : api_(api), result_(api.context_push(context)) {}
  ~CurrentContext() {
    CuContext ignored = nullptr;
    if (result_ == kCuSuccess) api_.context_pop(&ignored);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  [[nodiscard]] CuResult result() const noexcept { return result_; }

 private:
  const CudaApi& api_;
  CuResult result_;
};

/// @return the nearest errno, negative; 0 for success.
[[nodiscard]] int to_errno(CuResult result) noexcept;

}  // namespace gradwire::gpu
