// SPDX-License-Identifier: BSD-3-Clause
#include "group/gpu_lanes.h"

#include <fmt/format.h>
#include <rte_mempool.h>

#include <utility>

namespace gradwire::group {

Result<std::unique_ptr<GpuLanes>> GpuLanes::open(const reduce::GpuOptions& options,
                                                 const lane::Datapath& datapath) {
  std::unique_ptr<GpuLanes> lanes(new GpuLanes);
  auto device = reduce::GpuDevice::open(options);
  if (!device) return tl::unexpected(device.error());
  lanes->device_ = std::move(*device);
  for (std::uint8_t lane = 0; lane < datapath.lanes(); ++lane) {
    if (auto done = lanes->register_pool(*datapath.pools(lane).packet()); !done) {
      return tl::unexpected(done.error());
    }
    auto queue = reduce::GpuQueue::create(*lanes->device_, datapath.max_payload_bytes());
    if (!queue) return tl::unexpected(queue.error());
    lanes->queues_.push_back(std::move(*queue));
  }
  return lanes;
}

GpuLanes::~GpuLanes() {
  queues_.clear();
  for (void* memory : registered_) device_->unregister_host(memory);
  if (device_ != nullptr) device_->close();
}

Result<void> GpuLanes::register_pool(rte_mempool& pool) {
  std::vector<std::pair<void*, std::size_t>> parts;
  rte_mempool_mem_iter(
      &pool,
      [](rte_mempool*, void* out, rte_mempool_memhdr* memory, unsigned) {
        static_cast<std::vector<std::pair<void*, std::size_t>>*>(out)->emplace_back(memory->addr,
                                                                                    memory->len);
      },
      &parts);
  for (const auto& [address, bytes] : parts) {
    auto done = device_->register_host(address, bytes, fmt::format("mempool {}", pool.name));
    if (!done) return done;
    registered_.push_back(address);
  }
  return {};
}

}  // namespace gradwire::group
