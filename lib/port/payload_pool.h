// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A mempool whose mbufs have their data in a GPU's memory, into which ports receive payloads and
/// from which they send them. The mbufs themselves and the headers are in host memory. The control
/// thread creates and destroys it, which allocates; the lane uses it.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/port.h"
#include "reduce/device_memory.h"

struct rte_device;

namespace gradwire::port {

struct PayloadPlan {
  std::string name;  ///< unique in the process
  std::uint32_t mbufs = 0;
  std::uint32_t room = 0;  ///< bytes of the largest payload, a multiple of 64
  int socket = -1;         ///< NUMA node of the mbufs themselves
};

class PayloadPool {
 public:
  /// `memory` and the devices of `ports` outlive the pool; no running port may still use it when it
  /// is destroyed.
  [[nodiscard]] static Result<std::unique_ptr<PayloadPool>> create(
      const PayloadPlan& plan, reduce::DeviceMemory& memory,
      std::span<const std::unique_ptr<Port>> ports);
  ~PayloadPool();
  PayloadPool(const PayloadPool&) = delete;
  PayloadPool& operator=(const PayloadPool&) = delete;

  [[nodiscard]] rte_mempool* mempool() const noexcept { return mempool_; }
  /// @return where the CPU can access [address, address + bytes) of the pool's memory (slowly, over
  /// the bus); nullptr if it is not the pool's.
  [[nodiscard]] std::byte* for_cpu(const void* address, std::size_t bytes) const noexcept {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_);
    return offset < bytes_ && bytes <= bytes_ - offset ? cpu_ + offset : nullptr;
  }

 private:
  explicit PayloadPool(reduce::DeviceMemory& memory) : memory_(memory) {}
  [[nodiscard]] Result<void> make(const PayloadPlan& plan,
                                  std::span<const std::unique_ptr<Port>> ports);

  reduce::DeviceMemory& memory_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;  ///< the GPU's address
  std::byte* cpu_ = nullptr;   ///< the same memory for the CPU
  bool registered_ = false;    ///< with the EAL
  std::vector<rte_device*> mapped_;
  rte_mempool* mempool_ = nullptr;
};

}  // namespace gradwire::port
