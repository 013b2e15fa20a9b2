// SPDX-License-Identifier: BSD-3-Clause
// CUDA's runtime as the executor calls it, on the interpreter (gpu.h) and in the memory of the
// tests' libcuda.so.1. It keeps the rules that a real one keeps for these calls: a stream has to be
// alive, both ends of a copy have to be known, a cooperative launch has to fit, and after a fault
// every call fails.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu.h"
#include "libcuda.h"

namespace {

using namespace gradwire;
using ptx::Event;
using ptx::Gpu;
using ptx::InContext;
using ptx::of_libcuda;
using reduce::cuda::Kernel;
using reduce::cuda::kKernels;

constexpr int kBlocksPerMultiprocessor = 2;
constexpr unsigned kMultiprocessors = 132;  ///< as the tests' libcuda.so.1 has them

/// What kernels are known by: the addresses of these.
char tokens[std::size(kKernels)];

cudaError_t last() { return Gpu::get().fault().empty() ? cudaSuccess : cudaErrorIllegalAddress; }

bool is_known(const void* address, std::size_t bytes) {
  static auto* const find =
      of_libcuda<int(const void*, std::uintptr_t*, std::uintptr_t*)>("fake_cuda_range");
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  return find(address, &begin, &end) != 0 &&
         reinterpret_cast<std::uintptr_t>(address) + bytes <= end;
}

Gpu::Stream* of(cudaStream_t stream) { return reinterpret_cast<Gpu::Stream*>(stream); }

Event* of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

/// Events are kept until the process ends.
Event* make_event() {
  static std::mutex mutex;
  static auto* const events = new std::vector<std::unique_ptr<Event>>;
  const std::lock_guard lock(mutex);
  return events->emplace_back(std::make_unique<Event>()).get();
}

cudaError_t launch(const void* kernel, dim3 grid, dim3 block, void** arguments, cudaStream_t stream,
                   bool cooperative) {
  const auto which = static_cast<std::size_t>(static_cast<const char*>(kernel) - tokens);
  if (which >= std::size(kKernels)) return cudaErrorInvalidDeviceFunction;
  if (grid.x == 0 || grid.y != 1 || grid.z != 1 || block.x == 0 || block.x > 1024 || block.y != 1 ||
      block.z != 1) {
    return cudaErrorInvalidConfiguration;
  }
  if (cooperative && grid.x > kMultiprocessors * kBlocksPerMultiprocessor) {
    return cudaErrorCooperativeLaunchTooLarge;
  }
  if (last() == cudaSuccess) {
    Gpu::get().launch(of(stream), kKernels[which], arguments[0], {grid.x, block.x, cooperative});
  }
  return last();
}

}  // namespace

namespace gradwire::reduce::cuda {

const void* address_of(Kernel kernel) noexcept { return &tokens[static_cast<std::size_t>(kernel)]; }

}  // namespace gradwire::reduce::cuda

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "an error of the stand-in";
}
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = error == cudaErrorIllegalAddress ? Gpu::get().fault() : "see its number";
  return text.c_str();
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* address) {
  *out = {};
  out->type = is_known(address, 1) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  const InContext context;
  unsigned long long address = 0;
  if (of_libcuda<int(unsigned long long*, std::size_t)>("cuMemAlloc_v2")(&address, bytes) != 0) {
    return cudaErrorMemoryAllocation;
  }
  *out = reinterpret_cast<void*>(address);
  return last();
}
cudaError_t cudaFree(void* memory) {
  const InContext context;
  const auto address = reinterpret_cast<unsigned long long>(memory);
  return of_libcuda<int(unsigned long long)>("cuMemFree_v2")(address) == 0 ? last()
                                                                           : cudaErrorInvalidValue;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
  *out = reinterpret_cast<cudaStream_t>(Gpu::get().make_stream());
  return last();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Gpu::get().end_stream(of(stream));
  return last();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const bool idle = Gpu::get().is_idle(of(stream));
  return last() != cudaSuccess ? last() : idle ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  if (flags != cudaEventDisableTiming) return cudaErrorInvalidValue;
  *out = reinterpret_cast<cudaEvent_t>(make_event());
  return last();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  // Kept: a stream may still have to pass it.
  return event == nullptr ? cudaErrorInvalidValue : last();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::uint64_t number = ++of(event)->recorded;
  Gpu::get().give(of(stream), [event, number] {
    of(event)->passed_at = std::chrono::steady_clock::now();
    of(event)->passed = number;
  });
  return last();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Gpu::get().count_question();
  if (last() != cudaSuccess) return last();
  return of(event)->passed == of(event)->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!is_known(to, bytes)) return cudaErrorInvalidValue;
  Gpu::get().give(of(stream), [=] { std::memset(to, value, bytes); });
  return last();
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (!is_known(to, bytes) || !is_known(from, bytes)) return cudaErrorInvalidValue;
  Gpu::get().count_copy();
  Gpu::get().give(of(stream), [=] { std::memcpy(to, from, bytes); });
  return last();
}
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* bytes,
                                 std::size_t count, cudaMemcpyAttributes* attributes,
                                 std::size_t* first_of, std::size_t attribute_count,
                                 cudaStream_t stream) {
  if (count == 0 || attribute_count != 1 || first_of[0] != 0 ||
      attributes[0].srcAccessOrder != cudaMemcpySrcAccessOrderStream) {
    return cudaErrorInvalidValue;
  }
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_known(to[i], bytes[i]) || !is_known(from[i], bytes[i])) return cudaErrorInvalidValue;
    copies.push_back({to[i], from[i], bytes[i]});
  }
  Gpu::get().count_copy();
  Gpu::get().give(of(stream), [copies] {
    for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
  });
  return last();
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  *out = {};
  return last();
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* out, const void*, int, std::size_t) {
  *out = kBlocksPerMultiprocessor;
  return last();
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t, cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, stream, false);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        std::size_t, cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, stream, true);
}
}
