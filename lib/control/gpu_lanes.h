// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The GPU of a datapath: a queue for each lane, and the lanes' mempools registered with the
/// device, where kernels go to the packets in them. The control thread owns it; plans' shards hold
/// on to the queues, so it outlives them, and datapath and device outlive it.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "lane/datapath.h"
#include "reduce/gpu/device.h"

namespace gradwire::control {

class GpuLanes {
 public:
  [[nodiscard]] static Result<std::unique_ptr<GpuLanes>> open(reduce::GpuDevice& device,
                                                              const lane::Datapath& datapath);
  ~GpuLanes();
  GpuLanes(const GpuLanes&) = delete;
  GpuLanes& operator=(const GpuLanes&) = delete;

  [[nodiscard]] reduce::GpuDevice& device() noexcept { return device_; }
  [[nodiscard]] reduce::GpuQueue& queue(std::uint8_t lane) noexcept { return *queues_[lane]; }

 private:
  explicit GpuLanes(reduce::GpuDevice& device) : device_(device) {}
  [[nodiscard]] Result<void> register_pool(rte_mempool& pool);

  reduce::GpuDevice& device_;
  std::vector<void*> registered_;
  std::vector<std::unique_ptr<reduce::GpuQueue>> queues_;
};

}  // namespace gradwire::control
