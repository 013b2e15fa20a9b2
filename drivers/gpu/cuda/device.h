// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One NVIDIA GPU as gpu_cuda keeps it: the primary context (the one that CUDA's runtime uses too),
/// its allocated memory, the host memory registered with it, and what is mapped for the CPU.
/// Every error is logged with CUDA's own name and text for it, since the class library returns one
/// errno for most of them. Control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "gdrcopy.h"
#include "gpu/cuda_api.h"
#include "host_registry.h"

namespace gradwire::gpu_cuda {

using namespace gpu;

struct DeviceFacts {
  std::string model;
  std::string bus_id;  ///< "0000:3b:00.0"
  std::uint32_t multiprocessors = 0;
  std::size_t memory_bytes = 0;
  int numa_node = -1;
};

class Device {
 public:
  /// @return nullptr if there is no context; the log says why.
  [[nodiscard]] static std::unique_ptr<Device> open(const CudaApi& api, CuDevice device,
                                                    std::string name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Each returns 0 or a negative errno.
  [[nodiscard]] int allocate(std::size_t size, unsigned align, void*& address);
  [[nodiscard]] int free(void* address);
  [[nodiscard]] int register_host(std::size_t size, void* address);
  [[nodiscard]] int unregister_host(void* address);
  [[nodiscard]] int cpu_map(std::size_t size, void* address, void*& mapped);
  [[nodiscard]] int cpu_unmap(void* address);
  /// After it the GPU reads what the CPU has written through a mapping.
  [[nodiscard]] int write_barrier();

  [[nodiscard]] bool can_map() const noexcept { return gdrcopy_ != nullptr; }
  [[nodiscard]] const DeviceFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] CuContext context() const noexcept { return context_; }
  [[nodiscard]] std::size_t allocations() const noexcept { return allocations_.size(); }
  [[nodiscard]] std::size_t registrations() const noexcept { return registry_.pieces(); }

 private:
  struct Allocation {
    CuDevicePtr base = 0;
    std::size_t bytes = 0;
    std::unique_ptr<GdrMapping> mapping;
  };
  Device(const CudaApi& api, CuDevice device, std::string name);
  [[nodiscard]] bool retain();
  void read_facts();
  /// Logs what went wrong. @return to_errno(result).
  int told(const char* call, CuResult result) const;

  const CudaApi& api_;
  CuDevice device_;
  std::string name_;
  CuContext context_ = nullptr;
  DeviceFacts facts_;
  bool needs_flush_ = false;
  bool can_flush_ = false;
  std::unique_ptr<Gdrcopy> gdrcopy_;
  std::map<std::uintptr_t, Allocation> allocations_;  ///< by the aligned address
  HostRegistry registry_;
};

/// rte_log with the driver's type; `level` is an RTE_LOG_ level.
void log(std::uint32_t level, const std::string& text);

}  // namespace gradwire::gpu_cuda
