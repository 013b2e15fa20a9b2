// SPDX-License-Identifier: BSD-3-Clause
#include "lane/receive/group_index.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <vector>

namespace gradwire::lane {
namespace {

collective::ShardConfig group(std::uint64_t id, std::uint32_t epoch = 1) {
  collective::ShardConfig config;
  config.key = {id, epoch};
  config.nranks = 2;
  config.upstream.ip = config.downstream.ip = *wire::parse_ip("10.0.0.2");
  return config;
}

std::set<std::uint16_t> slots_of(const GroupIndex& index, std::uint32_t tag) {
  std::set<std::uint16_t> slots;
  for (std::uint16_t slot = index.find(tag); slot != GroupIndex::kNoSlot; slot = index.next(slot)) {
    CHECK(slots.insert(slot).second);
  }
  return slots;
}

TEST_CASE("a lane finds each of its groups by tag until it is removed") {
  constexpr std::uint16_t kGroups = 64;
  GroupIndex index({0x123456789abcdef0, 5}, kGroups);
  for (std::uint16_t slot = 0; slot < kGroups; ++slot) index.add(group(slot), slot);
  CHECK(index.has_neighbor(*wire::parse_ip("10.0.0.2")));
  CHECK_FALSE(index.has_neighbor(*wire::parse_ip("10.0.0.3")));
  for (std::uint16_t slot = 0; slot < kGroups; ++slot) {
    CHECK(slots_of(index, wire::group_tag({slot, 1})) == std::set{slot});
    CHECK(slots_of(index, wire::group_tag({slot, 2})).empty());
  }
  for (std::uint16_t slot = 0; slot < kGroups; slot += 2) index.remove(group(slot), slot);
  for (std::uint16_t slot = 0; slot < kGroups; ++slot) {
    const bool there = slot % 2 == 1;
    CHECK(slots_of(index, wire::group_tag({slot, 1})).size() == (there ? 1 : 0));
  }
  for (std::uint16_t slot = 1; slot < kGroups; slot += 2) index.remove(group(slot), slot);
  CHECK_FALSE(index.has_neighbor(*wire::parse_ip("10.0.0.2")));
}

TEST_CASE("groups of one tag are all found, in whichever order they come and go") {
  // Two keys whose tags are the same 32 bits of a hash, found by trying 2^16 of them and more.
  GroupKey first;
  GroupKey second;
  std::vector<std::uint64_t> seen;
  for (std::uint64_t id = 0; second.epoch == 0; ++id) {
    REQUIRE(id < (1u << 21));
    seen.push_back(std::uint64_t{wire::group_tag({id, 7})} << 32 | id);
    if (id < (1u << 17) || id % (1u << 17) != 0) continue;
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 1; i < seen.size(); ++i) {
      if (seen[i - 1] >> 32 != seen[i] >> 32) continue;
      first = {seen[i - 1] & 0xffffffff, 7};
      second = {seen[i] & 0xffffffff, 7};
      break;
    }
  }
  const std::uint32_t tag = wire::group_tag(first);
  REQUIRE(tag == wire::group_tag(second));
  for (const bool first_leaves_first : {true, false}) {
    GroupIndex index({99, 5}, 4);
    index.add(group(first.group_id, 7), 2);
    index.add(group(second.group_id, 7), 0);
    index.add(group(1u << 30), 1);
    CHECK(slots_of(index, tag) == std::set<std::uint16_t>{0, 2});
    const GroupKey& leaves = first_leaves_first ? first : second;
    index.remove(group(leaves.group_id, 7), first_leaves_first ? 2 : 0);
    CHECK(slots_of(index, tag) == std::set{static_cast<std::uint16_t>(first_leaves_first ? 0 : 2)});
  }
}

TEST_CASE("a group of one rank has no neighbor that could name it") {
  GroupIndex index({3, 5}, 4);
  collective::ShardConfig alone = group(4);
  alone.nranks = 1;
  index.add(alone, 0);
  CHECK(slots_of(index, wire::group_tag(alone.key)).empty());
  index.remove(alone, 0);
}

}  // namespace
}  // namespace gradwire::lane
