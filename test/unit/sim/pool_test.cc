// SPDX-License-Identifier: BSD-3-Clause
#include "sim/world/pool.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace gradwire::sim;

TEST_CASE("a pool gives as many mbufs as it was made for, and counts") {
  auto pool = PoolBank::instance().take(10, 1280);
  std::vector<rte_mbuf*> mbufs;
  for (int i = 0; i < 10; ++i) {
    mbufs.push_back(rte_pktmbuf_alloc(pool->get()));
    REQUIRE(mbufs.back() != nullptr);
  }
  CHECK(pool->in_use() == 10);
  CHECK(rte_pktmbuf_alloc(pool->get()) == nullptr);
  CHECK(pool->failures() == 1);
  for (rte_mbuf* mbuf : mbufs) rte_pktmbuf_free(mbuf);
  CHECK(pool->in_use() == 0);
  pool->reset(3);
  CHECK(pool->failures() == 0);
  PoolBank::instance().put(std::move(pool));
}

TEST_CASE("what is withheld is no failure of the pool") {
  auto pool = PoolBank::instance().take(10, 1280);
  rte_mbuf* first = rte_pktmbuf_alloc(pool->get());
  pool->withhold(pool->withhold_all_but(1));
  rte_mbuf* second = rte_pktmbuf_alloc(pool->get());
  REQUIRE(second != nullptr);
  CHECK(rte_pktmbuf_alloc(pool->get()) == nullptr);
  CHECK(pool->failures() == 0);
  pool->withhold(0);
  rte_mbuf* third = rte_pktmbuf_alloc(pool->get());
  CHECK(third != nullptr);
  for (rte_mbuf* mbuf : {first, second, third}) rte_pktmbuf_free(mbuf);
  PoolBank::instance().put(std::move(pool));
}

TEST_CASE("an mbuf that is freed twice is found and not given out twice") {
  auto pool = PoolBank::instance().take(10, 1280);
  rte_mbuf* mbuf = rte_pktmbuf_alloc(pool->get());
  rte_pktmbuf_free(mbuf);
  rte_pktmbuf_free(mbuf);
  CHECK(pool->double_frees() == 1);
  rte_mbuf* a = rte_pktmbuf_alloc(pool->get());
  rte_mbuf* b = rte_pktmbuf_alloc(pool->get());
  CHECK(a != b);
  rte_pktmbuf_free(a);
  rte_pktmbuf_free(b);
  PoolBank::instance().put(std::move(pool));
}

TEST_CASE("freed bytes are overwritten") {
  auto pool = PoolBank::instance().take(10, 1280);
  rte_mbuf* mbuf = rte_pktmbuf_alloc(pool->get());
  auto* bytes = rte_pktmbuf_mtod(mbuf, unsigned char*);
  bytes[0] = bytes[100] = 1;
  rte_pktmbuf_free(mbuf);
  CHECK(bytes[0] == 0xdb);
  CHECK(bytes[100] == 0xdb);
  PoolBank::instance().put(std::move(pool));
}
