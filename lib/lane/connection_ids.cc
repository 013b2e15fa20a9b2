// SPDX-License-Identifier: BSD-3-Clause
#include "lane/connection_ids.h"

#include <fmt/format.h>
#include <sys/random.h>

namespace gradwire::lane {

ConnectionIds::ConnectionIds() : slots_(kMaxConnections), free_(kMaxConnections) {
  for (std::uint32_t i = 0; i < kMaxConnections; ++i) free_[i] = i;
}

Result<std::uint32_t> ConnectionIds::allocate() {
  if (used_ == kMaxConnections) {
    return fail(
        ErrorCode::kResourceExhausted,
        fmt::format("all {} connection ids are in use: leave a group first", kMaxConnections));
  }
  const std::uint32_t index = free_[free_head_];
  Slot& slot = slots_[index];
  std::uint32_t id = 0;
  do {
    std::uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) {
      return fail(ErrorCode::kSystem, "getrandom failed: no connection id can be made");
    }
    id = (random << kConnectionIndexBits) | index;
  } while (id >> kConnectionIndexBits == 0 || id == slot.last_id);
  slot = {id, true};
  free_head_ = (free_head_ + 1) % kMaxConnections;
  ++used_;
  return id;
}

void ConnectionIds::release(std::uint32_t id) noexcept {
  const std::uint32_t index = id & (kMaxConnections - 1);
  Slot& slot = slots_[index];
  if (!slot.in_use || slot.last_id != id) return;
  slot.in_use = false;
  --used_;
  // `used_` entries behind the head were taken: the place of the oldest of them is free.
  free_[(free_head_ + kMaxConnections - used_ - 1) % kMaxConnections] = index;
}

}  // namespace gradwire::lane
