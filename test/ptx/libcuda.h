// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the tests' CUDA runtime uses of their libcuda.so.1, so that both have one memory, and its
/// events. For tests alone. Any thread.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace gradwire::ptx {

/// A function of the tests' libcuda.so.1, whose absence ends the program.
template <class Function>
[[nodiscard]] Function* of_libcuda(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found != nullptr) return reinterpret_cast<Function*>(found);
  std::fprintf(stderr, "the tests' libcuda.so.1 is not the one that is loaded: no %s\n", name);
  std::abort();
}

/// The device's primary context is current while it lives.
struct InContext {
  InContext() {
    void* context = nullptr;
    of_libcuda<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
    of_libcuda<int(void*)>("cuCtxPushCurrent_v2")(context);
  }
  ~InContext() {
    of_libcuda<int(void**)>("cuCtxPopCurrent_v2")(nullptr);
    of_libcuda<int(int)>("cuDevicePrimaryCtxRelease_v2")(0);
  }
};

struct Event {
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> passed{0};
  std::chrono::steady_clock::time_point passed_at;  ///< read after `passed`
};

}  // namespace gradwire::ptx
