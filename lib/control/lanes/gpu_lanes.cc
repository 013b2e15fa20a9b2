// SPDX-License-Identifier: BSD-3-Clause
#include "control/lanes/gpu_lanes.h"

#include <fmt/format.h>
#include <rte_mempool.h>

#include <utility>

namespace gradwire::control {

Result<std::unique_ptr<GpuLanes>> GpuLanes::open(reduce::GpuDevice& device,
                                                 const lane::Datapath& datapath) {
  std::unique_ptr<GpuLanes> lanes(new GpuLanes(device));
  for (std::uint8_t lane = 0; lane < datapath.lanes(); ++lane) {
    // The GPU does not access headers, and a pool in its own memory needs no registration.
    if (device.path() != reduce::PayloadPath::kGpuDirect) {
      auto done = lanes->register_pool(*datapath.pools(lane).packet());
      if (!done) return tl::unexpected(done.error());
    }
    auto queue = reduce::GpuQueue::create(device, datapath.max_payload_bytes());
    if (!queue) return tl::unexpected(queue.error());
    lanes->queues_.push_back(std::move(*queue));
  }
  return lanes;
}

GpuLanes::~GpuLanes() {
  queues_.clear();
  for (void* memory : registered_) device_.unregister_host(memory);
}

Result<void> GpuLanes::stop() {
  for (std::size_t lane = 0; lane < queues_.size(); ++lane) {
    if (queues_[lane]->stop()) continue;
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("GPU {}: a kernel of lane {} has not ended within {} s. The daemon ends "
                    "without giving back what the kernel may still write to; what is wrong "
                    "with the GPU is in the kernel's log (dmesg), after 'NVRM: Xid'",
                    device_.name(), lane, reduce::GpuQueue::kStopNs / 1'000'000'000));
  }
  return {};
}

Result<std::shared_ptr<std::byte[]>> GpuLanes::make_shared_memory(std::uint64_t bytes) {
  auto memory = device_.allocate_host(bytes, "ops off the ring");
  if (!memory) return tl::unexpected(memory.error());
  return std::shared_ptr<std::byte[]>(
      static_cast<std::byte*>(*memory),
      [&device = device_](std::byte* given) { device.free_host(given); });
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
    auto done = device_.register_host(address, bytes, fmt::format("mempool {}", pool.name));
    if (!done) return done;
    registered_.push_back(address);
  }
  return {};
}

}  // namespace gradwire::control
