// SPDX-License-Identifier: BSD-3-Clause
#include "collective/tiles/told_calls.h"

#include <catch2/catch.hpp>

#include "collective/links/told_order.h"

using namespace gradwire;
using namespace gradwire::collective;

TEST_CASE("calls of the lowest ops are kept, whoever told of them") {
  ToldCalls calls;
  CHECK(calls.oldest() == nullptr);
  calls.keep({.op_seq = 9, .rank = 1});
  calls.keep({.op_seq = 9, .rank = 2});
  REQUIRE(calls.oldest() != nullptr);
  CHECK(calls.oldest()->rank == 1);
  calls.keep({.op_seq = 12, .rank = 1});
  CHECK(calls.oldest()->op_seq == 9);
  // There is no place for one behind them; one before them takes the last one's.
  calls.keep({.op_seq = 14, .rank = 3});
  calls.keep({.op_seq = 7, .rank = 3});
  CHECK(calls.oldest()->op_seq == 7);
  calls.forget(7);
  CHECK(calls.oldest()->op_seq == 9);
  calls.forget(9);
  CHECK(calls.oldest() == nullptr);
  calls.keep({.op_seq = 12, .rank = 1});
  calls.forget(20);
  CHECK(calls.oldest() == nullptr);
}

TEST_CASE("each rank without members is told how long ago it was told last") {
  ShardConfig config;
  config.nranks = 4;
  config.folding_ranks = 2;
  ToldOrder order(config);
  CHECK(order.tell(4, 3) == 3);
  CHECK(order.tell(5, 4) == 4);
  CHECK(order.tell(4, 5) == 2);
  CHECK(order.tell(4, 5 + 255) == 255);
  CHECK(order.tell(4, 5 + 255 + 256) == 0);
  CHECK(order.tell(5, 5 + 255 + 256) == 0);
}
