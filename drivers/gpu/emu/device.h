// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The emulated GPU: memory, what is registered with it, and a thread that runs kernels. How it
/// misbehaves is set at its creation, so that a test can have a GPU that is late, that fails, or
/// that finishes in another order than asked.
///
/// Any thread may call it. Its memory is shared memory of this process's, mapped once for "the
/// GPU" and, by cpu_map(), at another address for the CPU, so that code that mixes up the two
/// fails.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "reduce/gpu/emulated_device.h"

namespace gradwire::gpu_emu {

/// Devargs, by their names.
struct Behaviour {
  std::uint64_t memory_mib = 1024;
  std::uint32_t sms = 16;         ///< rte_gpu_info::processor_count
  bool cpu_map = true;            ///< 0: no mapping for the CPU, as without GDRCopy
  bool guard = false;             ///< 1: reading its memory while no kernel runs kills the process
  std::uint64_t delay_us = 0;     ///< by how much each batch is late
  std::uint64_t fail_every = 0;   ///< every Nth batch fails; 0 = none
  std::uint64_t reorder = 1;      ///< N batches are collected, and run last to first
  std::uint64_t hang_after = 0;   ///< after N batches the device pauses once; 0 = never
  std::uint64_t hang_ms = 1'000;  ///< how long it pauses
};

class Device {
 public:
  explicit Device(const Behaviour& behaviour);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Each returns 0 or a negative errno; sizes are in bytes.
  [[nodiscard]] int allocate(std::size_t size, std::size_t align, void*& address);
  [[nodiscard]] int free(void* address);
  [[nodiscard]] int register_host(std::size_t size, void* address);
  [[nodiscard]] int unregister_host(void* address);
  [[nodiscard]] int cpu_map(std::size_t size, void* address, void*& mapped);
  [[nodiscard]] int cpu_unmap(void* address);

  [[nodiscard]] const Behaviour& behaviour() const noexcept { return behaviour_; }
  [[nodiscard]] const reduce::EmulatedDevice& face() const noexcept { return face_; }
  /// What was allocated or registered and not given back; 0 and 0 if nothing leaked.
  [[nodiscard]] std::size_t allocations() const;
  [[nodiscard]] std::size_t registrations() const;

 private:
  struct Allocation {
    int fd = -1;
    std::byte* base = nullptr;  ///< of the mapping; the aligned address is the key
    std::size_t mapped_bytes = 0;
    std::size_t bytes = 0;
    std::byte* cpu = nullptr;  ///< the CPU's mapping
  };
  struct Work {
    reduce::EmulatedDevice::Kernel kernel = nullptr;
    void* argument = nullptr;
    std::int64_t due_ns = 0;
  };

  [[nodiscard]] int launch(reduce::EmulatedDevice::Kernel kernel, void* argument);
  [[nodiscard]] int begin();
  [[nodiscard]] int next_outcome();
  [[nodiscard]] bool accessible(const void* address, std::size_t bytes) const;
  [[nodiscard]] int export_memory(const void* address) const;
  [[nodiscard]] std::int64_t delay_ns() const noexcept {
    return static_cast<std::int64_t>(behaviour_.delay_us) * 1'000;
  }
  void run();
  void wait_until(std::int64_t due_ns);
  void guard(bool closed);
  static void release(Allocation& allocation);

  const Behaviour behaviour_;
  reduce::EmulatedDevice face_;

  mutable std::shared_mutex memory_mutex_;
  std::map<std::uintptr_t, Allocation> allocations_;
  std::map<std::uintptr_t, std::size_t> registered_;  ///< bytes by address; none overlap
  std::size_t used_bytes_ = 0;

  std::mutex work_mutex_;
  std::condition_variable wake_;
  std::deque<Work> work_;
  std::uint64_t batches_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gradwire::gpu_emu
