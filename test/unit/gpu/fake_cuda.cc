// SPDX-License-Identifier: BSD-3-Clause
// What gradwire calls of CUDA's driver API, in host memory, with the rules that a real driver
// keeps: a context has to be current, memory has to be freed at its start, a page of the host is
// registered once. Memory that processes share is in fake_cuda_ipc.cc, streams and events in
// fake_cuda_streams.cc.
#include "fake_cuda.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>

namespace {

using namespace gradwire::fake_cuda;

constexpr std::uintptr_t kHostPage = 4096;

/// Where calls of cuMemcpyAsync() stay while it is shut, as if the driver were slow.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool shut = false;
  int waiting = 0;

  void pass() {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.wait(lock, [this] { return !shut; });
    --waiting;
  }
};

Gate gate;
int context_storage;
thread_local int current = 0;
int retained = 0;
std::mutex host_mutex;
std::map<std::uintptr_t, std::uintptr_t> registered;
std::atomic<std::uint64_t> flushes{0};
std::atomic<bool> failing[kFailingCount];

}  // namespace

namespace gradwire::fake_cuda {

bool has_context() { return current > 0; }

bool fails_now(Failing what) { return failing[what].exchange(false); }

void pass_gate_of_copies() { gate.pass(); }

std::size_t total_memory() {
  const char* text = std::getenv("GRADWIRE_FAKE_CUDA_MEMORY");
  return text == nullptr ? std::size_t{64} << 20 : std::strtoull(text, nullptr, 10);
}

}  // namespace gradwire::fake_cuda

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
  const auto set = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  constexpr int kMultiprocessors = 16, kFlushOptions = 117, kWritesOrdering = 118;
  *value = attribute == kMultiprocessors  ? 132
           : attribute == kFlushOptions   ? set("GRADWIRE_FAKE_CUDA_FLUSH_OPTIONS", 1)
           : attribute == kWritesOrdering ? set("GRADWIRE_FAKE_CUDA_WRITES_ORDERING", 100)
                                          : 1;
  return kSuccess;
}
int cuDeviceGetName(char* out, int bytes, int) {
  std::snprintf(out, static_cast<std::size_t>(bytes), "Fake GPU");
  return kSuccess;
}
// GRADWIRE_FAKE_CUDA_UUID is its first byte: another GPU for another process.
int cuDeviceGetUuid_v2(unsigned char* out, int) {
  const char* text = std::getenv("GRADWIRE_FAKE_CUDA_UUID");
  for (int i = 0; i < 16; ++i) out[i] = static_cast<unsigned char>(0xf0 + i);
  if (text != nullptr) out[0] = static_cast<unsigned char>(std::strtoul(text, nullptr, 10));
  return kSuccess;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = total_memory();
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &context_storage;
  const std::lock_guard lock(host_mutex);
  ++retained;
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  const std::lock_guard lock(host_mutex);
  return --retained >= 0 ? kSuccess : kInvalidContext;
}
int cuCtxPushCurrent_v2(void* context) {
  if (context != &context_storage) return kInvalidContext;
  ++current;
  return kSuccess;
}
int cuCtxPopCurrent_v2(void**) { return --current >= 0 ? kSuccess : kInvalidContext; }
int cuCtxGetDevice(int* device) {
  *device = 0;
  return has_context() ? kSuccess : kInvalidContext;
}
int cuCtxSynchronize() { return has_context() ? kSuccess : kInvalidContext; }
int cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned) {
  if (!has_context()) return kInvalidContext;
  if (fails_now(kHostRegister)) return kOutOfMemory;
  if (may_not_now()) return kCaptureUnsupported;
  const auto begin = reinterpret_cast<std::uintptr_t>(address) / kHostPage * kHostPage;
  const auto end =
      (reinterpret_cast<std::uintptr_t>(address) + bytes + kHostPage - 1) / kHostPage * kHostPage;
  const std::lock_guard lock(host_mutex);
  for (const auto& [other, other_end] : registered) {
    if (begin < other_end && other < end) return kAlreadyRegistered;
  }
  registered[begin] = end;
  return kSuccess;
}
int cuMemHostUnregister(void* address) {
  if (may_not_now()) return kCaptureUnsupported;
  const std::lock_guard lock(host_mutex);
  return registered.erase(reinterpret_cast<std::uintptr_t>(address)) == 1 ? kSuccess
                                                                          : kNotRegistered;
}
int cuMemHostGetDevicePointer_v2(unsigned long long* out, void* address, unsigned) {
  *out = reinterpret_cast<unsigned long long>(address);
  return kSuccess;
}
int cuPointerSetAttribute(const void*, int, unsigned long long) { return kSuccess; }
// GRADWIRE_FAKE_CUDA_EVERYWHERE: all memory is the GPU's, that of torch's tensors on the CPU too.
int cuPointerGetAttribute(void* out, int attribute, unsigned long long address) {
  constexpr int kDeviceOrdinal = 9;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  if (attribute != kDeviceOrdinal) return kInvalidValue;
  if (std::getenv("GRADWIRE_FAKE_CUDA_EVERYWHERE") == nullptr &&
      fake_cuda_range(reinterpret_cast<const void*>(address), &begin, &end) == 0) {
    return kInvalidValue;
  }
  *static_cast<int*>(out) = 0;
  return kSuccess;
}
void fake_cuda_shut_copies(int shut) {
  const std::lock_guard lock(gate.mutex);
  gate.shut = shut != 0;
  gate.changed.notify_all();
}
int fake_cuda_waiting_copies() {
  const std::lock_guard lock(gate.mutex);
  return gate.waiting;
}
void fake_cuda_fail_next(Failing what) { failing[what] = true; }
int fake_cuda_registrations() {
  const std::lock_guard lock(host_mutex);
  return static_cast<int>(registered.size());
}
int cuFlushGPUDirectRDMAWrites(int, int) {
  flushes.fetch_add(1);
  return has_context() ? kSuccess : kInvalidContext;
}
std::uint64_t fake_cuda_flushes() { return flushes.load(); }
int fake_cuda_range(const void* address, std::uintptr_t* begin, std::uintptr_t* end) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  {
    const std::lock_guard lock(host_mutex);
    const auto after = registered.upper_bound(at);
    if (after != registered.begin() && std::prev(after)->second > at) {
      std::tie(*begin, *end) = *std::prev(after);
      return 1;
    }
  }
  return find_allocation(at, *begin, *end) ? 1 : 0;
}
}
