// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the parts of the fake libcuda.so.1 share, and what a test can ask of it by dlsym() in the
/// library that is loaded already. For tests alone; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::fake_cuda {

inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kInvalidContext = 201;
inline constexpr int kInvalidHandle = 400;
inline constexpr int kNotReady = 600;
inline constexpr int kAlreadyRegistered = 712;
inline constexpr int kNotRegistered = 713;
inline constexpr int kLaunchFailed = 719;
inline constexpr int kCaptureUnsupported = 900;
inline constexpr int kCaptureIsolation = 905;
inline constexpr int kCaptureImplicit = 906;

[[nodiscard]] bool has_context();
[[nodiscard]] std::size_t total_memory();
/// @return whether `address` is in memory that was allocated or imported; [begin, end).
[[nodiscard]] bool find_allocation(std::uintptr_t address, std::uintptr_t& begin,
                                   std::uintptr_t& end);

/// Calls that a test can make fail.
enum Failing { kCopyRefused, kCopyFails, kHostRegister, kStreamWait, kFailingCount };
/// @return whether this call of `what` is one that the test wants to fail.
[[nodiscard]] bool fails_now(Failing what);

/// Where a copy stays if the test wants it to.
void pass_gate_of_copies();

/// Of a call that is unsafe while a graph is captured: whether this thread may not make it now.
/// Then the capture is spoilt.
[[nodiscard]] bool may_not_now();

/// What this process has of the fake and did not give back.
struct Held {
  int allocations = 0;
  int imports = 0;  ///< of memory and of events
  int events = 0;
  int streams = 0;
  int registrations = 0;
};
/// Adds those of memory.
void count_memory(Held& held);

}  // namespace gradwire::fake_cuda

extern "C" {
/// 1: what streams are given stays undone until 0, which does it, or until one is waited for.
void fake_cuda_hold_streams(int hold);
/// The same of one stream.
void fake_cuda_hold_stream(void* stream, int hold);
void* fake_cuda_new_stream();
/// Until the end what the stream is given goes into a graph, which nobody runs.
void fake_cuda_begin_capture(void* stream);
/// @return 1 if the graph is good, 0 if something spoilt its capture.
int fake_cuda_end_capture(void* stream);
/// 1: calls of cuMemcpyAsync() stay within until 0, and so many do.
void fake_cuda_shut_copies(int shut);
int fake_cuda_waiting_copies();
/// The next call fails: a copy when it is asked for or when it runs, and whatever its stream is
/// given from then on.
void fake_cuda_fail_next(gradwire::fake_cuda::Failing what);
void fake_cuda_held(gradwire::fake_cuda::Held* out);
/// How often other devices' writes into GPU memory have been flushed.
std::uint64_t fake_cuda_flushes();
/// @return 1 if a kernel may touch `address`, and the range about it.
int fake_cuda_range(const void* address, std::uintptr_t* begin, std::uintptr_t* end);
}
