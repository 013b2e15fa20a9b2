// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The part of CUDA's driver API that gpu_cuda calls, loaded from libcuda.so.1 when the first
/// device is probed: so the driver builds without CUDA's headers, and loads where there is no GPU.
/// The declarations are of the CUDA Driver API reference; where cuda.h is there when this is built,
/// cuda_api.cc compares every number with it.
/// Control thread. load() once; the functions stay for the life of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gradwire::gpu_cuda {

using CuResult = int;
using CuDevice = int;
using CuContext = void*;
using CuDevicePtr = unsigned long long;

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuInvalidValue = 1;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuHostMemoryAlreadyRegistered = 712;
inline constexpr CuResult kCuHostMemoryNotRegistered = 713;
inline constexpr CuResult kCuNotSupported = 801;

inline constexpr int kAttributeMultiprocessorCount = 16;
inline constexpr int kAttributeCanUseHostPointer = 91;
inline constexpr int kAttributeGpuDirectRdma = 116;
inline constexpr int kAttributeRdmaFlushOptions = 117;
inline constexpr int kAttributeRdmaWritesOrdering = 118;

inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr int kPointerAttributeSyncMemops = 6;
inline constexpr int kFlushOptionHost = 1;
inline constexpr int kWritesOrderingNone = 0;
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
  CuResult (*flush_rdma_writes)(int target, int scope);
};

/// @return nullptr where the library or one of its functions is missing; `why` says which.
[[nodiscard]] const CudaApi* load_cuda(std::string& why);

/// "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
[[nodiscard]] std::string describe(const CudaApi& api, CuResult result);

/// The errno that comes nearest, negative; 0 for success.
[[nodiscard]] int to_errno(CuResult result) noexcept;

}  // namespace gradwire::gpu_cuda
