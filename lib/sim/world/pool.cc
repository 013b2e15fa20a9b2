// SPDX-License-Identifier: BSD-3-Clause
#include "sim/world/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace gradwire::sim {
namespace {

constexpr const char* kDriver = "gradwire_sim";
constexpr std::uint32_t kAtHome = 0x484f4d45;
/// How many freed bytes are overwritten: headers and the start of the payload, enough to be
/// noticed.
constexpr std::size_t kPoisonBytes = 320;
/// An acknowledgement of all its ranges fits, whatever the payload.
constexpr std::uint32_t kSmallestRoom = 1280;
/// And one that every payload of the configuration fits.
constexpr std::uint32_t kLargeRoom = 10'240;

/// The field by which an mbuf says that it is in its pool. The simulator has no dynamic fields.
std::uint32_t& mark_of(void* object) noexcept {
  return static_cast<rte_mbuf*>(object)->dynfield1[8];
}

Pool* pool_of(const rte_mempool* mempool) noexcept {
  return static_cast<Pool*>(mempool->pool_config);
}

int driver_alloc(rte_mempool* mempool) {
  mempool->pool_data = mempool->pool_config;
  return 0;
}
void driver_free(rte_mempool*) {}
int driver_enqueue(rte_mempool* mempool, void* const* objects, unsigned count) {
  return pool_of(mempool)->enqueue(objects, count);
}
int driver_dequeue(rte_mempool* mempool, void** objects, unsigned count) {
  return pool_of(mempool)->dequeue(objects, count);
}
unsigned driver_count(const rte_mempool* mempool) { return pool_of(mempool)->available(); }

void register_driver() {
  static const bool registered = [] {
    rte_mempool_ops ops{};
    std::strncpy(ops.name, kDriver, sizeof ops.name - 1);
    ops.alloc = driver_alloc;
    ops.free = driver_free;
    ops.enqueue = driver_enqueue;
    ops.dequeue = driver_dequeue;
    ops.get_count = driver_count;
    return rte_mempool_register_ops(&ops) >= 0;
  }();
  if (!registered) throw std::runtime_error("the simulator's mempool driver cannot be registered");
}

}  // namespace

Pool::Pool(std::uint32_t mbufs, std::uint32_t room) : room_(room), capacity_(mbufs), limit_(mbufs) {
  register_driver();
  static int serial = 0;
  const std::string name = fmt::format("sim_pool_{}", serial++);
  stack_.reserve(mbufs);
  const std::uint32_t element = sizeof(rte_mbuf) + RTE_PKTMBUF_HEADROOM + room;
  rte_pktmbuf_pool_private sizes{};
  sizes.mbuf_data_room_size = static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM + room);
  mempool_ = rte_mempool_create_empty(name.c_str(), mbufs, element, 0, sizeof sizes, SOCKET_ID_ANY,
                                      RTE_MEMPOOL_F_SP_PUT | RTE_MEMPOOL_F_SC_GET);
  if (mempool_ == nullptr || rte_mempool_set_ops_byname(mempool_, kDriver, this) != 0) {
    throw std::runtime_error(fmt::format("no mempool {}", name));
  }
  rte_pktmbuf_pool_init(mempool_, &sizes);
  if (rte_mempool_populate_default(mempool_) < 0) {
    rte_mempool_free(mempool_);
    throw std::runtime_error(
        fmt::format("no memory for mempool {} of {} mbufs with {} bytes", name, mbufs, room));
  }
  rte_mempool_obj_iter(mempool_, rte_pktmbuf_init, nullptr);
  filling_ = false;
  for (void* object : stack_) mark_of(object) = kAtHome;
  std::reverse(stack_.begin(), stack_.end());
  order_ = stack_;
}

Pool::~Pool() { rte_mempool_free(mempool_); }

void Pool::reset(std::uint32_t mbufs) noexcept {
  limit_ = std::min(mbufs, capacity_);
  withheld_ = 0;
  failures_ = double_frees_ = 0;
  stack_ = order_;
}

int Pool::enqueue(void* const* objects, unsigned count) noexcept {
  for (unsigned i = 0; i < count; ++i) {
    if (!filling_) {
      std::uint32_t& mark = mark_of(objects[i]);
      if (mark == kAtHome) {
        ++double_frees_;
        continue;
      }
      mark = kAtHome;
      auto* mbuf = static_cast<rte_mbuf*>(objects[i]);
      std::memset(static_cast<std::byte*>(mbuf->buf_addr) + RTE_PKTMBUF_HEADROOM, 0xdb,
                  std::min<std::size_t>(kPoisonBytes, room_));
      --in_use_;
    }
    stack_.push_back(objects[i]);
  }
  return 0;
}

int Pool::dequeue(void** objects, unsigned count) noexcept {
  if (in_use_ + withheld_ + count > limit_) {
    if (in_use_ + count > limit_) ++failures_;
    return -ENOBUFS;
  }
  for (unsigned i = 0; i < count; ++i) {
    objects[i] = stack_.back();
    stack_.pop_back();
    mark_of(objects[i]) = 0;
  }
  in_use_ += count;
  return 0;
}

PoolBank& PoolBank::instance() {
  // Never destroyed: the program may have ended the EAL before, and the mempools with it.
  static auto* const bank = new PoolBank;
  return *bank;
}

std::unique_ptr<Pool> PoolBank::take(std::uint32_t mbufs, std::uint32_t room) {
  // Few sizes, so that the next run can use what is kept.
  const std::uint32_t wanted_room =
      room <= kSmallestRoom ? kSmallestRoom : std::max(room, kLargeRoom);
  const std::uint32_t wanted = std::max(std::bit_ceil(mbufs), 256u);
  std::unique_ptr<Pool>* smallest = nullptr;
  for (auto& pool : pools_) {
    if (pool->room() != wanted_room || pool->capacity() < wanted) continue;
    if (smallest == nullptr || pool->capacity() < (*smallest)->capacity()) smallest = &pool;
  }
  std::unique_ptr<Pool> found;
  if (smallest != nullptr) {
    found = std::move(*smallest);
    std::swap(*smallest, pools_.back());
    pools_.pop_back();
  } else {
    found = make(wanted, wanted_room);
  }
  found->reset(mbufs);
  return found;
}

std::unique_ptr<Pool> PoolBank::make(std::uint32_t mbufs, std::uint32_t room) {
  try {
    return std::make_unique<Pool>(mbufs, room);
  } catch (const std::runtime_error&) {
    if (pools_.empty()) throw;
  }
  // Pools that earlier runs of other sizes left take up the room.
  pools_.clear();
  return std::make_unique<Pool>(mbufs, room);
}

void PoolBank::put(std::unique_ptr<Pool> pool) {
  if (pool != nullptr && pool->in_use() == 0) pools_.push_back(std::move(pool));
}

}  // namespace gradwire::sim
