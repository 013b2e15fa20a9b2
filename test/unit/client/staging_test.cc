// SPDX-License-Identifier: BSD-3-Clause
#include "client/staging.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "base/streaming_copy.h"

using namespace gradwire::client;

namespace {

std::shared_ptr<Mapping> map(std::uint64_t bytes, std::uint32_t handle) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(address != MAP_FAILED);
  return std::make_shared<Mapping>(static_cast<std::byte*>(address), bytes, handle, -1);
}

constexpr std::uint64_t kMiB = 1u << 20;

}  // namespace

TEST_CASE("small pieces are cut from one slab, apart from each other") {
  StagingPool pool(64 * kMiB);
  REQUIRE_FALSE(pool.take(5000).has_value());
  const std::uint64_t slab = StagingPool::allocation_bytes(5000);
  CHECK(slab == StagingPool::kSmallestSlab);
  std::vector<StagingSlot> slots;
  slots.push_back(pool.adopt(map(slab, 1), 5000));
  while (auto slot = pool.take(5000)) slots.push_back(std::move(*slot));
  CHECK(slots.size() == slab / 8192);
  std::vector<bool> seen(slots.size());
  for (const StagingSlot& slot : slots) {
    CHECK(slot.bytes == 8192);
    REQUIRE(slot.offset + slot.bytes <= slab);
    REQUIRE_FALSE(seen[slot.offset / 8192]);
    seen[slot.offset / 8192] = true;
  }
  CHECK(pool.total_bytes() == slab);
  const std::uint64_t offset = slots.back().offset;
  CHECK(pool.give_back(std::move(slots.back())) == nullptr);
  CHECK(pool.take(8192)->offset == offset);
}

TEST_CASE("another size class has slabs of its own, of several slots") {
  StagingPool pool(64 * kMiB);
  (void)pool.adopt(map(StagingPool::allocation_bytes(1), 1), 1);
  CHECK_FALSE(pool.take(4097).has_value());
  CHECK(pool.take(4096).has_value());
  CHECK(StagingPool::allocation_bytes(kMiB) == 8 * kMiB);
}

TEST_CASE("large pieces are kept up to the cache's size and reused where they fit") {
  StagingPool pool(10 * kMiB);
  CHECK(StagingPool::allocation_bytes(3 * kMiB) == 3 * kMiB);
  StagingSlot four = pool.adopt(map(4 * kMiB, 1), 3 * kMiB);
  StagingSlot six = pool.adopt(map(6 * kMiB, 2), 6 * kMiB);
  StagingSlot two = pool.adopt(map(2 * kMiB, 3), 2 * kMiB);
  CHECK(pool.total_bytes() == 12 * kMiB);
  CHECK(pool.give_back(std::move(four)) == nullptr);
  CHECK(pool.give_back(std::move(six)) == nullptr);
  const auto surplus = pool.give_back(std::move(two));
  REQUIRE(surplus != nullptr);
  CHECK(surplus->handle == 3);
  CHECK(pool.total_bytes() == 10 * kMiB);

  CHECK_FALSE(pool.take(7 * kMiB).has_value());
  CHECK_FALSE(pool.take(kMiB + 1).has_value());  // four times that is too large a piece for it
  const auto best = pool.take(3 * kMiB);
  REQUIRE(best.has_value());
  CHECK(best->mapping->handle == 1);
  const auto dropped = pool.drop_cache();
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0]->handle == 2);
  CHECK(pool.total_bytes() == 4 * kMiB);
}

TEST_CASE("a copy to and from a mapping has all bytes, be it of few or of many") {
  for (const std::size_t bytes :
       {gradwire::kStreamingCopyBytes - 1, gradwire::kStreamingCopyBytes + 77}) {
    const auto mapping = map(bytes + 4096, 1);
    std::vector<std::uint8_t> from(bytes);
    std::uint32_t next = 1;
    for (std::uint8_t& byte : from)
      byte = static_cast<std::uint8_t>((next = next * 1664525 + 1) >> 24);
    REQUIRE(mapping->copy(mapping->address + 3, from.data(), bytes));
    std::vector<std::uint8_t> back(bytes);
    REQUIRE(mapping->copy(back.data(), mapping->address + 3, bytes));
    CHECK(back == from);
  }
}
