// SPDX-License-Identifier: BSD-3-Clause
// How ranks that are no neighbors on the ring reach each other.
#include "control/formation/peers.h"

#include "fake_daemon.h"

namespace gradwire::control {

using test::FakeDaemon;
using test::join_body;
using test::local_address;
using test::table_of;

namespace {

LocalAddress memif(std::uint16_t port, const std::string& ip) {
  LocalAddress address = local_address(port, ip);
  address.single_peer = true;
  return address;
}

/// So many daemons, each with a memif link to the next: link i joins i and i + 1.
std::vector<std::vector<LocalAddress>> memif_ring(std::size_t nranks) {
  std::vector<std::vector<LocalAddress>> addresses(nranks);
  for (std::size_t i = 0; i < nranks; ++i) {
    const std::size_t before = (i + nranks - 1) % nranks;
    addresses[i] = {memif(0, "10.77." + std::to_string(i) + ".1"),
                    memif(1, "10.77." + std::to_string(before) + ".2")};
  }
  return addresses;
}

std::vector<ipc::RankInfo> described(const std::vector<std::vector<LocalAddress>>& addresses,
                                     std::uint8_t lanes = 2) {
  std::vector<ipc::RankInfo> table;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    table.push_back(test::described(100 + i, lanes, addresses[i]));
  }
  return table;
}

std::vector<ipc::RankInfo> willing(std::vector<ipc::RankInfo> table, std::uint16_t kib = 64) {
  for (ipc::RankInfo& info : table) {
    info.direct_kib = kib;
    info.fold_sources = kMaxRanks;
  }
  return table;
}

}  // namespace

TEST_CASE("ranks of one network reach each other, and both ends choose the same addresses") {
  const GroupKey key = {0xfeed, 1};
  const auto table = table_of(5);
  CHECK_FALSE(unconnected_ranks(table));
  const auto of = [&](std::uint16_t rank) {
    const std::string ip = "10.0.0." + std::to_string(rank + 1);
    return peer_paths(key, rank, 2, table, std::vector{local_address(4, ip)}).value();
  };
  const auto from_0 = of(0);
  const auto from_2 = of(2);
  REQUIRE(from_0.size() == 2);
  CHECK(from_0[0].rank == 2);
  CHECK(from_0[1].rank == 3);
  REQUIRE(from_2.size() == 2);
  CHECK(from_2[0].rank == 0);
  REQUIRE(from_0[0].paths.size() == 1);
  const NeighborPath& there = from_0[0].paths[0];
  const NeighborPath& back = from_2[0].paths[0];
  CHECK(wire::to_string(there.remote_ip) == "10.0.0.3");
  CHECK(there.remote_ip == back.local_ip);
  CHECK(there.local_ip == back.remote_ip);
  CHECK(there.port == 4);
  CHECK(there.remote_base_udp_port == 18515);
  CHECK(there.incarnation == 102);
  for (std::size_t lane = 0; lane < 2; ++lane) {
    CHECK(from_0[0].tokens[lane].to == from_2[0].tokens[lane].from);
    CHECK(from_0[0].tokens[lane].from == from_2[0].tokens[lane].to);
  }
  CHECK(from_0[0].tokens[0].to != from_0[0].tokens[1].to);
}

TEST_CASE("a memif port leads to one rank alone") {
  CHECK_FALSE(unconnected_ranks(described(memif_ring(3))));
  CHECK(unconnected_ranks(described(memif_ring(4))) == Apart{0, 2});

  auto meshed = memif_ring(4);
  meshed[0].push_back(memif(2, "10.78.0.1"));
  meshed[2].push_back(memif(2, "10.78.0.2"));
  CHECK(unconnected_ranks(described(meshed)) == Apart{1, 3});
  meshed[1].push_back(memif(2, "10.78.1.1"));
  meshed[3].push_back(memif(2, "10.78.1.2"));
  CHECK_FALSE(unconnected_ranks(described(meshed)));
  const auto paths = peer_paths({1, 1}, 0, 2, described(meshed), meshed[0]).value();
  REQUIRE(paths.size() == 1);
  REQUIRE(paths[0].paths.size() == 1);
  CHECK(paths[0].paths[0].port == 2);
  CHECK(wire::to_string(paths[0].paths[0].remote_ip) == "10.78.0.2");

  // A third end in the network: nobody knows who is at the other end of whose port.
  meshed[1].push_back(memif(3, "10.78.0.3"));
  CHECK(unconnected_ranks(described(meshed)) == Apart{0, 2});
}

TEST_CASE("ranks of several networks reach each other if both have a route") {
  std::vector<std::vector<LocalAddress>> addresses;
  for (int i = 0; i < 6; ++i) {
    addresses.push_back(
        {local_address(0, "10.8." + std::to_string(i / 3) + "." + std::to_string(i + 1))});
    addresses.back()[0].routed = i != 5;
  }
  CHECK(unconnected_ranks(described(addresses)) == Apart{1, 5});
  addresses[5][0].routed = true;
  CHECK_FALSE(unconnected_ranks(described(addresses)));
  // Rails of two names are two networks, whatever their addresses say.
  addresses[2][0].rail = 1;
  addresses[4][0].rail = 2;
  CHECK(unconnected_ranks(described(addresses)) == Apart{2, 4});
}

TEST_CASE("a table of as many networks as ranks is not compared for long") {
  // Each has ports on two of three rails, so any two meet on one, which is not the same for all.
  std::vector<std::vector<LocalAddress>> addresses;
  for (std::uint32_t i = 0; i < 1024; ++i) {
    const std::string net = std::to_string(i / 250) + "." + std::to_string(i % 250) + ".";
    addresses.push_back({local_address(0, "10." + net + "1"), local_address(1, "11." + net + "1")});
    for (LocalAddress& address : addresses.back()) address.routed = true;
    addresses.back()[0].rail = 1 + i % 3;
    addresses.back()[1].rail = 1 + (i + 1) % 3;
  }
  const auto table = described(addresses);
  const auto apart = unconnected_ranks(table);
  REQUIRE(apart);
  CHECK(apart->too_many);
  CHECK(text_of(*apart, table).find("8192 pairs") != std::string::npos);
  // In few networks all are told apart, however many ranks there are.
  for (auto& each : addresses) {
    for (LocalAddress& address : each) address.ip.bytes[1] = address.ip.bytes[2] = 0;
  }
  CHECK_FALSE(unconnected_ranks(described(addresses)));
  for (LocalAddress& address : addresses[700]) address.rail = 4;
  CHECK(unconnected_ranks(described(addresses)) == Apart{0, 700});
}

TEST_CASE("rank 0's size counts, and the weakest backend decides") {
  auto table = willing(table_of(4));
  table[2].direct_kib = 0;
  CHECK(direct_agreement(table).bytes == 64u << 10);
  CHECK(direct_agreement(table).why_not.empty());
  table[0].direct_kib = 0;
  table[1].direct_kib = 64;
  CHECK(direct_agreement(table).bytes == 0);
  CHECK(direct_agreement(table).why_not.empty());
  table = willing(table_of(4));
  table[3].fold_sources = 3;
  CHECK(direct_agreement(table).bytes == 0);
  CHECK_THAT(direct_agreement(table).why_not,
             Catch::Matchers::Contains("rank 3 can fold what 3 ranks give, and the group has 4"));
  const DirectAgreement apart = direct_agreement(willing(described(memif_ring(5))));
  CHECK(apart.bytes == 0);
  CHECK_THAT(apart.why_not,
             Catch::Matchers::Contains("ranks 0 (10.77.0.1/24, 10.77.4.2/24) and 2"));
  CHECK(direct_agreement(willing(table_of(64), 4)).bytes == 4u << 10);
  CHECK_THAT(direct_agreement(willing(table_of(65), 4)).why_not,
             Catch::Matchers::Contains("4 KiB hold no 64 bytes of each of 65 ranks"));
  auto largest = willing(table_of(1024));
  CHECK_THAT(direct_agreement(largest).why_not, Catch::Matchers::Contains("no ports that lead"));
  for (ipc::RankInfo& info : largest) info.addresses[0].routed = 1;
  CHECK(direct_agreement(largest).bytes == 64u << 10);
  largest[0].gathered_kib = 128;
  largest[0].gathered_ranks = 1023;
  CHECK(direct_agreement(largest).gathered_bytes == 128u << 10);
  CHECK(direct_agreement(largest).gathered_ranks == 1023);
  largest[0].gathered_ranks = 1024;
  CHECK(direct_agreement(largest).gathered_bytes == 0);
}

TEST_CASE("ops in two steps are summed by those ranks that say so, and by all if none does") {
  auto table = willing(table_of(4));
  table[0].two_step_kib = 16;
  CHECK(direct_agreement(table).owners == nullptr);
  const std::uint64_t without = table_digest({1, 2}, 1, {8192, 2, 0}, table);
  table[1].two_step_owner = table[3].two_step_owner = 1;
  CHECK(table_digest({1, 2}, 1, {8192, 2, 0}, table) != without);
  const DirectAgreement some = direct_agreement(table);
  REQUIRE(some.owners != nullptr);
  REQUIRE(some.owners->count() == 2);
  CHECK(some.owners->rank_at(0) == 1);
  CHECK(some.owners->rank_at(1) == 3);
  CHECK_FALSE(some.owners->has(2));
  // An owner has the same bound, so ops are as much smaller.
  PlanRequest plan;
  plan.nranks = 4;
  plan.two_step_bytes = some.two_step_bytes;
  CHECK(plan.two_step_op_bytes() == 64u << 10);
  plan.owners = some.owners;
  CHECK(plan.two_step_owners() == 2);
  CHECK(plan.two_step_op_bytes() == 32u << 10);
  for (ipc::RankInfo& info : table) info.two_step_owner = 1;
  CHECK(direct_agreement(table).owners == nullptr);
}

TEST_CASE("rank 0 says whether ops go by tiles, if every daemon can") {
  std::vector<ipc::RankInfo> table = table_of(3);
  for (ipc::RankInfo& info : table) info.tiles = 1;
  table[0].tiles_wanted = ipc::RankInfo::kTilesNever;
  CHECK_FALSE(tile_agreement(table).possible);
  table[1].tiles_wanted = ipc::RankInfo::kTilesAlways;
  CHECK_FALSE(tile_agreement(table).possible);
  CHECK(tile_agreement(table).why_not.empty());
  table[0].tiles_wanted = ipc::RankInfo::kTilesAlways;
  CHECK(tile_agreement(table).possible);
  CHECK(tile_agreement(table).shares == nullptr);
  table[2].tiles = 0;
  CHECK_FALSE(tile_agreement(table).possible);
  CHECK_THAT(tile_agreement(table).why_not, Catch::Matchers::Contains("rank 2 has no tiles"));
  table[2].tiles = 1;
  CHECK_FALSE(tile_agreement(std::span(table).first(1)).possible);
  // On memif links only neighbors reach each other.
  table = described(memif_ring(4));
  for (ipc::RankInfo& info : table) info.tiles = 1;
  table[0].tiles_wanted = ipc::RankInfo::kTilesAlways;
  CHECK_THAT(tile_agreement(table).why_not, Catch::Matchers::Contains("have no ports that lead"));
}

TEST_CASE("sums may travel in formats if every daemon has them, and else it is said why not") {
  std::vector<ipc::RankInfo> table = table_of(3);
  for (ipc::RankInfo& info : table) {
    info.tiles = 1;
    info.formats = ipc::RankInfo::kAllFormats;
  }
  TileAgreement agreed = tile_agreement(table);
  CHECK(agreed.possible);
  CHECK(agreed.for_formats_alone);
  CHECK_THAT(agreed.why_not, Catch::Matchers::Contains("the rate of a port of rank 0"));
  CHECK(agreed.why_no_formats.empty());
  // Else the cost model chooses, by rank 0's figures.
  for (ipc::RankInfo& info : table) {
    info.rates[0] = 100;
    info.packet_ns = 7;
    info.byte_ps = 8;
    info.hop_ns = 9;
  }
  table[0].packet_ns = 250;
  table[0].byte_ps = 100;
  table[0].hop_ns = 5000;
  agreed = tile_agreement(table, 0, nullptr, 2);
  CHECK_FALSE(agreed.for_formats_alone);
  CHECK(agreed.why_not.empty());
  REQUIRE(agreed.costs != nullptr);
  CHECK(*agreed.costs == collective::TileCosts({.packet_ns = 250, .byte_ps = 100, .hop_ns = 5000},
                                               std::vector<std::uint32_t>(3, 100), 3, nullptr, 2));
  table[2].rates[0] = 0;
  CHECK_THAT(tile_agreement(table).why_not,
             Catch::Matchers::Contains("the rate of a port of rank 2"));
  table[2].rates[0] = 100;
  table[1].packet_ns = 0;
  agreed = tile_agreement(table);
  CHECK(agreed.for_formats_alone);
  CHECK_THAT(agreed.why_not, Catch::Matchers::Contains("rank 1 is of an older release"));
  table[0].tiles_wanted = ipc::RankInfo::kTilesAlways;
  agreed = tile_agreement(table);
  CHECK(agreed.possible);
  CHECK_FALSE(agreed.for_formats_alone);
  CHECK(agreed.costs == nullptr);
  CHECK(agreed.why_no_formats.empty());

  // One format is not enough: callers could not know which.
  table[1].formats = 1;
  CHECK(tile_agreement(table).possible);
  CHECK_THAT(tile_agreement(table).why_no_formats,
             Catch::Matchers::Contains("rank 1 does not have both"));
  table[0].tiles_wanted = ipc::RankInfo::kTilesAuto;
  CHECK_FALSE(tile_agreement(table).possible);
  table[2].tiles = 0;
  CHECK_THAT(tile_agreement(table).why_no_formats,
             Catch::Matchers::Contains("rank 2 has no tiles"));
  // Rank 0 leaves it to the model, so it is said as of a rate that is not known.
  CHECK_THAT(tile_agreement(table).why_not, Catch::Matchers::Contains("rank 2 has no tiles"));
  table[0].tiles_wanted = ipc::RankInfo::kTilesNever;
  CHECK_THAT(tile_agreement(table).why_no_formats, Catch::Matchers::Contains("\"never\""));
  // Of one rank a format does nothing, and every call may have one.
  CHECK(tile_agreement(std::span(table).first(1)).why_no_formats.empty());
}

TEST_CASE("a pair has the fewest streams that a daemon says, and no more than there are places") {
  auto table = table_of(2);
  const auto streams = [&](std::uint16_t members, bool alone = false) {
    const GroupProcesses processes{2, members, nullptr};
    const TransferAgreement agreed = transfer_agreement(table, processes, nullptr, alone);
    return agreed.possible ? int{agreed.streams} : 0;
  };
  for (ipc::RankInfo& info : table) info.transfers = 0;
  CHECK(streams(1) == 0);
  table[0].transfers = table[1].transfers = collective::kStreamsMax;
  CHECK(streams(1) == 64);
  CHECK(streams(5) == 64);  // 5 x 10 pairs
  CHECK(streams(8) == 32);  // 8 x 16 pairs
  CHECK(streams(64) == 1);  // 64 x 128 pairs, more than there are streams for
  // Of groups for transfers alone a user may have many.
  CHECK(streams(1, true) == 64);
  CHECK(streams(4, true) == 32);  // 4 x 8 pairs
  CHECK(streams(22, true) == 1);  // 22 x 44 pairs
  CHECK(streams(23, true) == 0);
  table[1].transfers = 1;  // an older daemon
  CHECK(streams(1) == 1);
  table[0].transfers = table[1].transfers = UINT16_MAX;
  CHECK(streams(1) == 64);
}

TEST_CASE("formation asks for ranks off the ring in turn, and names who does not answer") {
  FakeDaemon daemon;
  daemon.options.daemon.direct_kib = 64;
  daemon.options.daemon.fold_sources = kMaxRanks;
  daemon.make();
  daemon.open(1);
  daemon.lanes.silent = {"10.0.0.4"};
  daemon.join(1, join_body(0, willing(table_of(6))));
  CHECK(daemon.lanes.plan_requests.empty());
  CHECK(daemon.lanes.asked_in_turn == std::set<std::string>{"10.0.0.3", "10.0.0.4", "10.0.0.5"});
  CHECK_THAT(daemon.group_json()["waits_for"].dump(),
             Catch::Matchers::Contains("rank 3 (10.0.0.4) does not answer ARP"));
  daemon.lanes.silent.clear();
  daemon.poll();
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  const PlanRequest& plan = daemon.lanes.plan_requests[0];
  CHECK(plan.direct_bytes == 64u << 10);
  CHECK(plan.two_step_bytes % 1024 == 0);
  CHECK(daemon.group_json()["direct_kib"] == 64);
  CHECK(daemon.group_json()["why_not_direct"] == "");
  REQUIRE(plan.peers.size() == 3);
  CHECK(plan.peers[1].paths[0].remote_mac.value()[5] == 4);
}

TEST_CASE("a receive ring that cannot hold a packet of each rank is told of") {
  const auto warnings_of = [](std::uint32_t places, std::uint32_t direct_kib) {
    FakeDaemon daemon;
    daemon.options.daemon.direct_kib = direct_kib;
    daemon.options.daemon.fold_sources = kMaxRanks;
    daemon.lanes.local[0].rx_descriptors = places;
    daemon.make();
    daemon.open(1);
    auto table = willing(table_of(16));
    for (ipc::RankInfo& info : table) info.direct_kib = direct_kib;
    daemon.join(1, join_body(0, table));
    CHECK(daemon.status_json()["daemon"]["warnings"].empty());  // it is not formed
    daemon.all_lanes_formed(1);
    CHECK(daemon.group_json()["state"] == "formed");
    // Of several groups it is said once.
    auto second = join_body(0, table);
    second.request.group_id = 0xbeef;
    daemon.join(1, second);
    daemon.all_lanes_formed(2);
    CHECK(daemon.group_json(1)["state"] == "formed");
    return daemon.status_json()["daemon"]["warnings"];
  };
  // 16, and one for acknowledgements.
  const auto warnings = warnings_of(16, 64);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0].get<std::string>(),
             Catch::Matchers::Contains("a packet of each of its 16 ranks at once, and a receive "
                                       "ring of the port at 10.0.0.1 has 16 places") &&
                 Catch::Matchers::Contains("Set port.rx_descriptors to 32"));
  CHECK(warnings_of(17, 64).empty());
  CHECK(warnings_of(0, 64).empty());  // not known
  CHECK(warnings_of(16, 0).empty());  // all ops take the ring
}

TEST_CASE("nobody is asked for if no op is direct") {
  FakeDaemon daemon;
  daemon.open(1);
  daemon.join(1, join_body(0, table_of(6)));
  REQUIRE(daemon.lanes.plan_requests.size() == 1);
  CHECK(daemon.lanes.plan_requests[0].peers.empty());
  CHECK(daemon.lanes.asked_in_turn.empty());
}

}  // namespace gradwire::control
