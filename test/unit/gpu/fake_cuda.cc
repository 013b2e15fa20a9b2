// SPDX-License-Identifier: BSD-3-Clause
// What gpu_cuda calls of CUDA's driver API, in host memory, with the rules that a real driver
// keeps: a context has to be current, memory has to be freed at its start, a page of the host is
// registered once. GRADWIRE_FAKE_CUDA_MEMORY is the device's memory in bytes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidContext = 201;
constexpr int kAlreadyRegistered = 712;
constexpr int kNotRegistered = 713;
constexpr std::uintptr_t kPage = 4096;

int context_storage;
int current = 0;
int retained = 0;
std::map<unsigned long long, std::size_t> memory;
std::map<std::uintptr_t, std::uintptr_t> registered;
std::size_t used = 0;

std::size_t total() {
  const char* text = std::getenv("GRADWIRE_FAKE_CUDA_MEMORY");
  return text == nullptr ? std::size_t{64} << 20 : std::strtoull(text, nullptr, 10);
}

}  // namespace

extern "C" {
int cuInit(unsigned) { return kSuccess; }
int cuGetErrorName(int error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_FAKE";
  return kSuccess;
}
int cuGetErrorString(int error, const char** text) {
  *text = error == kOutOfMemory ? "out of memory" : "an error of the fake library";
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : kInvalidDevice;
}
int cuDeviceGetByPCIBusId(int*, const char*) { return kInvalidDevice; }
int cuDeviceGetPCIBusId(char* out, int bytes, int) {
  std::snprintf(out, static_cast<std::size_t>(bytes), "0000:FA:00.0");
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 16 ? 132 : attribute == 118 ? 100 : 1;
  return kSuccess;
}
int cuDeviceGetName(char* out, int bytes, int) {
  std::snprintf(out, static_cast<std::size_t>(bytes), "Fake GPU");
  return kSuccess;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = total();
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &context_storage;
  ++retained;
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int) { return --retained >= 0 ? kSuccess : kInvalidContext; }
int cuCtxPushCurrent_v2(void* context) {
  if (context != &context_storage) return kInvalidContext;
  ++current;
  return kSuccess;
}
int cuCtxPopCurrent_v2(void**) { return --current >= 0 ? kSuccess : kInvalidContext; }
int cuCtxSynchronize() { return current > 0 ? kSuccess : kInvalidContext; }
int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  if (current == 0) return kInvalidContext;
  if (bytes > total() - used) return kOutOfMemory;
  // Filled with what a GPU's memory may hold: gpu_cuda has to clear it.
  const std::size_t room = (bytes + 511) / 256 * 256;
  void* made = std::aligned_alloc(256, room);
  std::memset(made, 0xee, room);
  // A second allocation may not begin at a page, as the first bytes of a real one often do not.
  *address = reinterpret_cast<unsigned long long>(made);
  memory[*address] = bytes;
  used += bytes;
  return kSuccess;
}
int cuMemFree_v2(unsigned long long address) {
  const auto found = memory.find(address);
  if (current == 0) return kInvalidContext;
  if (found == memory.end()) return kInvalidValue;
  used -= found->second;
  std::free(reinterpret_cast<void*>(address));
  memory.erase(found);
  return kSuccess;
}
int cuMemsetD8_v2(unsigned long long address, unsigned char value, std::size_t bytes) {
  if (current == 0) return kInvalidContext;
  std::memset(reinterpret_cast<void*>(address), value, bytes);
  return kSuccess;
}
int cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned) {
  if (current == 0) return kInvalidContext;
  const auto begin = reinterpret_cast<std::uintptr_t>(address) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(address) + bytes + kPage - 1) / kPage * kPage;
  for (const auto& [other, other_end] : registered) {
    if (begin < other_end && other < end) return kAlreadyRegistered;
  }
  registered[begin] = end;
  return kSuccess;
}
int cuMemHostUnregister(void* address) {
  return registered.erase(reinterpret_cast<std::uintptr_t>(address)) == 1 ? kSuccess
                                                                          : kNotRegistered;
}
int cuMemHostGetDevicePointer_v2(unsigned long long* out, void* address, unsigned) {
  *out = reinterpret_cast<unsigned long long>(address);
  return kSuccess;
}
int cuPointerSetAttribute(const void*, int, unsigned long long) { return kSuccess; }
int cuFlushGPUDirectRDMAWrites(int, int) { return kSuccess; }
}
