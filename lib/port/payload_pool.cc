// SPDX-License-Identifier: BSD-3-Clause
#include "port/payload_pool.h"

#include <fmt/format.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>

namespace gradwire::port {

namespace {

constexpr unsigned kPayloadCacheMbufs = 64;

tl::unexpected<Error> pool_error(const std::string& name, const std::string& what) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("mempool {}: {}: {}", name, what, rte_strerror(rte_errno)));
}

rte_device* device_of(const Port& port) {
  rte_eth_dev_info info{};
  return rte_eth_dev_info_get(port.id(), &info) == 0 ? info.device : nullptr;
}

}  // namespace

Result<std::unique_ptr<PayloadPool>> PayloadPool::create(
    const PayloadPlan& plan, reduce::DeviceMemory& memory,
    std::span<const std::unique_ptr<Port>> ports) {
  std::unique_ptr<PayloadPool> pool(new PayloadPool(memory));
  if (auto made = pool->make(plan, ports); !made) return tl::unexpected(made.error());
  return pool;
}

Result<void> PayloadPool::make(const PayloadPlan& plan,
                               std::span<const std::unique_ptr<Port>> ports) {
  const std::size_t page = memory_.page_bytes();
  bytes_ = (std::size_t{plan.mbufs} * plan.room + page - 1) / page * page;
  auto memory = memory_.allocate(bytes_, static_cast<std::uint32_t>(page));
  if (!memory) return tl::unexpected(memory.error());
  base_ = *memory;
  auto mapped = memory_.map_for_cpu(base_, bytes_);
  if (!mapped) return tl::unexpected(mapped.error());
  cpu_ = *mapped;

  const std::string what = fmt::format("{} bytes of {}'s memory", bytes_, memory_.name());
  // The EAL gets no physical addresses, since only the GPU knows them: drivers look the memory up
  // by its virtual address.
  if (rte_extmem_register(base_, bytes_, nullptr, 0, page) != 0) {
    return pool_error(plan.name, what + " could not be registered with the EAL");
  }
  registered_ = true;
  for (const auto& port : ports) {
    rte_device* const device = device_of(*port);
    if (device == nullptr || std::find(mapped_.begin(), mapped_.end(), device) != mapped_.end()) {
      continue;
    }
    if (rte_dev_dma_map(device, base_, RTE_BAD_IOVA, bytes_) != 0) {
      return pool_error(plan.name, fmt::format("port {} cannot access {} by DMA (rte_dev_dma_map)",
                                               port->config().device, what));
    }
    mapped_.push_back(device);
  }

  rte_pktmbuf_extmem place{};
  place.buf_ptr = base_;
  place.buf_iova = RTE_BAD_IOVA;
  place.buf_len = bytes_;
  place.elt_size = static_cast<std::uint16_t>(plan.room);
  mempool_ =
      rte_pktmbuf_pool_create_extbuf(plan.name.c_str(), plan.mbufs, kPayloadCacheMbufs, 0,
                                     static_cast<std::uint16_t>(plan.room), plan.socket, &place, 1);
  if (mempool_ == nullptr) {
    return pool_error(plan.name,
                      fmt::format("{} mbufs in {} could not be allocated", plan.mbufs, what));
  }
  return {};
}

PayloadPool::~PayloadPool() {
  rte_mempool_free(mempool_);
  // A driver logs it if this fails; the memory is freed in any case.
  for (rte_device* device : mapped_) {
    [[maybe_unused]] const int result = rte_dev_dma_unmap(device, base_, RTE_BAD_IOVA, bytes_);
  }
  if (registered_) {
    [[maybe_unused]] const int result = rte_extmem_unregister(base_, bytes_);
  }
  if (cpu_ != nullptr) memory_.unmap_for_cpu(base_);
  if (base_ != nullptr) memory_.free(base_);
}

}  // namespace gradwire::port
