// SPDX-License-Identifier: BSD-3-Clause
// What else of CUDA's runtime gpu_bench calls, so that it can be tried without a GPU: its figures
// are then those of the interpreter. Compiled where CUDA's headers are.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "gpu.h"
#include "libcuda.h"

using gradwire::ptx::Event;
using gradwire::ptx::InContext;
using gradwire::ptx::of_libcuda;

extern "C" {
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr attribute, int) {
  *out = attribute == cudaDevAttrMultiProcessorCount ? 132 : 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  *out = {};
  std::strcpy(out->name, "PTX on an interpreter");
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  const InContext context;
  constexpr std::size_t kPage = 4096;
  *out = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  return of_libcuda<int(void*, std::size_t, unsigned)>("cuMemHostRegister_v2")(*out, bytes, 0) == 0
             ? cudaSuccess
             : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* memory) {
  const InContext context;
  const bool known = of_libcuda<int(void*)>("cuMemHostUnregister")(memory) == 0;
  std::free(memory);
  return known ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return cudaEventCreateWithFlags(out, cudaEventDisableTiming);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  cudaError_t result = cudaErrorNotReady;
  while ((result = cudaEventQuery(event)) == cudaErrorNotReady) std::this_thread::yield();
  return result;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  const auto at = [](cudaEvent_t event) { return reinterpret_cast<Event*>(event)->passed_at; };
  *ms = std::chrono::duration<float, std::milli>(at(to) - at(from)).count();
  return cudaSuccess;
}
/// The caller waits in place of the stream.
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned) {
  return cudaEventSynchronize(event);
}
}
