// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The GPU behind the tests' CUDA runtime (runtime.cc): one host thread that does what streams are
/// given, and runs the kernels' PTX (machine.h). A launched kernel runs to its end; persistent
/// kernels and other streams take turns, in an order that a seed decides. Kernels may touch what
/// the tests' libcuda.so.1 has allocated and registered, and nothing else.
///
/// As with CUDA, a kernel's fault is the end: every later call reports it.
///
/// Environment: GRADWIRE_PTX (folder of the kernels' texts), GRADWIRE_PTX_ARCHITECTURE (sm_90),
/// GRADWIRE_PTX_SEED (0: everything in its order).
///
/// For tests alone: allocates, takes locks. Any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "machine.h"
#include "reduce/cuda/kernels.h"

namespace gradwire::ptx {

/// @return part of the kernel's name in the PTX, which no other function has.
[[nodiscard]] const char* name_of(reduce::cuda::Kernel kernel);

struct LaunchShape {
  std::uint32_t blocks = 1;
  std::uint32_t threads = 1;
  bool cooperative = false;  ///< all blocks at once
};

class Gpu {
 public:
  struct Stream;
  using Work = std::function<void()>;

  /// Made by the first call, ends with the process.
  static Gpu& get();
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] Stream* make_stream();
  /// What it was given is still done. With the last stream it says which kernels have run.
  void end_stream(Stream* stream);
  void give(Stream* stream, Work work);
  void launch(Stream* stream, reduce::cuda::Kernel kernel, const void* parameters,
              const LaunchShape& shape);
  [[nodiscard]] bool is_idle(Stream* stream);
  /// Takes nothing from streams, and lets running kernels stand, until it is called with false.
  void hold(bool held);
  /// Kernels may not touch [address, address + bytes), though it is registered. The test ends it by
  /// allow().
  void forbid(const void* address, std::size_t bytes);
  void allow(const void* address);
  struct Calls {
    std::uint64_t copies = 0;     ///< of one array or of many
    std::uint64_t questions = 0;  ///< whether an event has passed
    LaunchShape launched;         ///< the last launch
  };
  void count_copy();
  void count_question();
  [[nodiscard]] Calls calls();
  /// What a kernel was stopped for; empty if none was.
  [[nodiscard]] std::string fault();

 private:
  struct Ran {
    std::uint64_t launches = 0;
    std::uint64_t instructions = 0;
  };
  Gpu();
  void run();
  /// Does one piece of work of the stream, or a turn of its kernel. Called without the lock.
  void advance(Stream& stream);
  void start(Stream& stream, reduce::cuda::Kernel kernel, const std::vector<std::byte>& parameters,
             const LaunchShape& shape);
  [[nodiscard]] bool has_work() const;
  void report();

  const std::uint64_t seed_;
  const Module module_;
  std::mt19937_64 random_;
  Machine launched_;  ///< of kernels that run to their end
  std::uint64_t streams_made_ = 0;
  std::mutex mutex_;
  std::condition_variable awake_;
  std::vector<std::shared_ptr<Stream>> streams_;
  bool held_ = false;
  bool ended_ = false;
  Calls calls_;
  std::string fault_;
  std::map<std::string, Ran> ran_;
  std::thread thread_;
};

}  // namespace gradwire::ptx
