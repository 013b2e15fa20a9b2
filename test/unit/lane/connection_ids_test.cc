// SPDX-License-Identifier: BSD-3-Clause
#include "lane/connection_ids.h"

#include <catch2/catch.hpp>
#include <memory>
#include <set>

using namespace gradwire;
using namespace gradwire::lane;

TEST_CASE("connection ids are unique, never 0, and bounded") {
  ConnectionIds ids;
  std::set<std::uint32_t> seen;
  std::set<std::uint32_t> indexes;
  for (std::uint32_t i = 0; i < kMaxConnections; ++i) {
    const auto id = ids.allocate();
    REQUIRE(id);
    CHECK(*id != 0);
    seen.insert(*id);
    indexes.insert(*id % kMaxConnections);
  }
  CHECK(seen.size() == kMaxConnections);
  CHECK(indexes.size() == kMaxConnections);
  CHECK(ids.allocate().error().code == ErrorCode::kResourceExhausted);

  // The only free index comes again under another id.
  const std::uint32_t first = *seen.begin();
  ids.release(first);
  ids.release(first);  // a second time changes nothing
  CHECK(ids.used() == kMaxConnections - 1);
  const auto again = ids.allocate();
  REQUIRE(again);
  CHECK(*again % kMaxConnections == first % kMaxConnections);
  CHECK(*again != first);
  CHECK_FALSE(ids.allocate());
}

TEST_CASE("a released index rests as long as others are free") {
  ConnectionIds ids;
  const auto first = ids.allocate();
  REQUIRE(first);
  ids.release(*first);
  for (std::uint32_t i = 0; i < kMaxConnections - 1; ++i) {
    const auto id = ids.allocate();
    REQUIRE(id);
    CHECK(*id % kMaxConnections != *first % kMaxConnections);
  }
  CHECK(*ids.allocate() % kMaxConnections == *first % kMaxConnections);
}

TEST_CASE("a table finds whole ids only") {
  const auto table = std::make_unique<ConnectionTable>();
  const std::uint32_t id = (5u << kConnectionIndexBits) | 17;
  const std::uint32_t older = (4u << kConnectionIndexBits) | 17;
  CHECK(table->find(id) == ConnectionTable::kNoSlot);
  table->insert(id, 3);
  CHECK(table->find(id) == 3);
  CHECK(table->find(older) == ConnectionTable::kNoSlot);
  CHECK(table->find(17) == ConnectionTable::kNoSlot);
  table->erase(older);
  CHECK(table->find(id) == 3);
  table->erase(id);
  CHECK(table->find(id) == ConnectionTable::kNoSlot);
  table->insert(0, 3);
  CHECK(table->find(0) == ConnectionTable::kNoSlot);
}
