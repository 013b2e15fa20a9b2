// SPDX-License-Identifier: BSD-3-Clause
#include "port/pools.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_mbuf.h>

namespace gradwire::port {

namespace {

// The cache of one lcore. It is LIFO too, and holds up to 1.5 times as many before it is flushed.
constexpr unsigned kCacheMbufs = 64;
constexpr unsigned kControlCacheMbufs = 32;
constexpr std::uint32_t kBurst = 32;
// Data room of an exchanged frame: the front of what asks for neighbors, or answers.
constexpr std::uint16_t kExchangeRoom = RTE_PKTMBUF_HEADROOM + 768;

struct Made {
  rte_mempool* pool = nullptr;
  const char* ops = "";
};

Result<Made> make_pool(const std::string& name, std::uint32_t mbufs, unsigned cache,
                       std::uint32_t room, int socket) {
  if (room > UINT16_MAX) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("mempool {}: mbufs of {} bytes are needed, but 65535 is the largest size", name,
                    room));
  }
  for (const char* ops : {"stack", "ring_mp_mc"}) {
    rte_mempool* pool = rte_pktmbuf_pool_create_by_ops(
        name.c_str(), mbufs, cache, 0, static_cast<std::uint16_t>(room), socket, ops);
    if (pool != nullptr) return Made{pool, ops};
    // EINVAL: the ops are unknown. After any other error a second try would fail too.
    if (rte_errno != EINVAL) break;
  }
  return fail(ErrorCode::kResourceExhausted,
              fmt::format("mempool {}: {} mbufs of {} bytes could not be allocated on NUMA node "
                          "{}: {}; reserve more hugepages there or lower limits.groups",
                          name, mbufs, room, socket, rte_strerror(rte_errno)));
}

}  // namespace

std::uint32_t packet_pool_mbufs(const PacketDemand& demand) noexcept {
  // mbufs in an lcore's cache are out of reach only for other lcores. Only one lane allocates from
  // this pool, so nothing is added for the cache.
  return demand.shards * demand.mbufs_per_shard + demand.descriptors + demand.driver_mbufs +
         demand.backlog + 2 * kBurst;
}

Result<std::unique_ptr<LanePools>> LanePools::create(const PoolPlan& plan) {
  std::unique_ptr<LanePools> pools(new LanePools);
  const std::uint32_t room = plan.buffer_bytes + RTE_PKTMBUF_HEADROOM;
  auto packet = make_pool(fmt::format("{}_packet_{}", plan.name_prefix, plan.lane),
                          plan.packet_mbufs, kCacheMbufs, room, plan.socket);
  if (!packet) return tl::unexpected(packet.error());
  pools->packet_ = packet->pool;
  pools->ops_ = packet->ops;
  // The control thread, when it closes a port, keeps some in its own cache: hence that many more.
  auto control =
      make_pool(fmt::format("{}_control_{}", plan.name_prefix, plan.lane),
                plan.control_mbufs + 2 * kControlCacheMbufs, kControlCacheMbufs, room, plan.socket);
  if (!control) return tl::unexpected(control.error());
  pools->control_ = control->pool;
  return pools;
}

LanePools::~LanePools() {
  rte_mempool_free(packet_);
  rte_mempool_free(control_);
}

Result<rte_mempool*> make_exchange_pool(const std::string& name_prefix, std::uint32_t mbufs) {
  auto made = make_pool(fmt::format("{}_exchange", name_prefix), mbufs, 0, kExchangeRoom, -1);
  if (!made) return tl::unexpected(made.error());
  return made->pool;
}

}  // namespace gradwire::port
