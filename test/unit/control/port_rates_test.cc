// SPDX-License-Identifier: BSD-3-Clause
// Rates of ports in the table, and what follows from them.
#include <catch2/catch.hpp>

#include "control/formation/peers.h"
#include "table_support.h"

using namespace gradwire;
using namespace gradwire::control;
using namespace gradwire::control::test;

TEST_CASE("an entry has the rate of each port that is known") {
  std::vector<LocalAddress> addresses = {local_address(0, "10.0.0.1"),
                                         local_address(1, "10.1.0.1", 16)};
  addresses[0].rate_bps = 25'000'000'000;
  const ipc::RankInfo info = make_rank_info(daemon_info(7), 3, addresses);
  CHECK(info.rates[0] == 250);
  CHECK(info.rates[1] == 0);
  CHECK(info.rates[2] == 0);
  // However slow or fast it is.
  addresses[0].rate_bps = 1'000'000;
  addresses[1].rate_bps = 10'000'000'000'000;
  const ipc::RankInfo odd = make_rank_info(daemon_info(7), 3, addresses);
  CHECK(odd.rates[0] == 1);
  CHECK(odd.rates[1] == UINT16_MAX);
}

TEST_CASE("an entry with the rate of a port that it lacks is refused") {
  std::vector<ipc::RankInfo> table = table_of(3);
  table[1].rates[table[1].address_count] = 1;
  const auto agreed = check_join(join_body(0, table), rank_info(0));
  REQUIRE_FALSE(agreed);
  CHECK(agreed.error().message.find("rank 1 says the rate of address 1, and has 1") !=
        std::string::npos);
}

TEST_CASE("who owns how much of ops by tiles follows from the rates of all ports") {
  std::vector<ipc::RankInfo> table = table_of(6);
  for (ipc::RankInfo& info : table) info.tiles = 1;
  table[0].tiles_wanted = ipc::RankInfo::kTilesAlways;
  const auto shares = [&](std::uint16_t folding_ranks) {
    return tile_agreement(table, folding_ranks).shares;
  };
  // A rate is not known: nobody without members, each its segment; else all alike.
  CHECK(shares(0) == nullptr);
  REQUIRE(shares(2) != nullptr);
  CHECK(shares(2)->share_of(0) == shares(2)->share_of(5));
  for (ipc::RankInfo& info : table) info.rates[0] = 10;
  CHECK(shares(0) == nullptr);
  CHECK(static_cast<double>(shares(2)->share_of(5)) / static_cast<double>(shares(2)->all()) ==
        Approx(0.3).margin(0.001));
  // A rank's rate is the sum of its ports'.
  table[0].address_count = 2;
  CHECK(shares(0) == nullptr);
  table[0].rates[1] = 10;
  REQUIRE(shares(0) != nullptr);
  CHECK(shares(0)->share_of(0) > shares(0)->share_of(1));
}
