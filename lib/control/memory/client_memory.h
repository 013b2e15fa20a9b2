// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Where clients' gradient memory is, and what must register it before an op may use it: the host's
/// hugepages, or GPU memory. Only the control thread calls it, except for the two calls that say
/// otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "reduce/gpu/device.h"

namespace gradwire::control {

class ClientMemory {
 public:
  virtual ~ClientMemory() = default;

  /// Whether the host's memory must be registered from before the first op refers to it until after
  /// the last one. That takes longer for more memory, so the worker calls the next two functions;
  /// the control thread calls them only if there is no worker any more.
  [[nodiscard]] virtual bool is_registered() const = 0;
  [[nodiscard]] virtual Result<void> register_host(std::byte* address, std::uint64_t bytes) = 0;
  virtual void unregister_host(std::byte* address) = 0;

  /// Whether memory is made on a GPU that the lanes reduce on, or (false) in hugepages of the host.
  [[nodiscard]] virtual bool is_on_gpu() const = 0;
  [[nodiscard]] virtual Result<reduce::SharedGpuMemory> allocate_on_gpu(std::uint64_t bytes) = 0;
  virtual void free_on_gpu(std::byte* address) = 0;
  [[nodiscard]] virtual Result<reduce::SharedReadyEvent> make_ready_event() = 0;
};

/// For a daemon whose lanes reduce on the CPU.
class HostMemory final : public ClientMemory {
 public:
  [[nodiscard]] bool is_registered() const override { return false; }
  [[nodiscard]] Result<void> register_host(std::byte*, std::uint64_t) override { return {}; }
  void unregister_host(std::byte*) override {}
  [[nodiscard]] bool is_on_gpu() const override { return false; }
  [[nodiscard]] Result<reduce::SharedGpuMemory> allocate_on_gpu(std::uint64_t) override {
    return fail(ErrorCode::kUnsupported, "the daemon has no GPU");
  }
  void free_on_gpu(std::byte*) override {}
  [[nodiscard]] Result<reduce::SharedReadyEvent> make_ready_event() override {
    return fail(ErrorCode::kUnsupported, "the daemon has no GPU");
  }
};

}  // namespace gradwire::control
