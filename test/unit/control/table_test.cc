// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/table.h"

#include <catch2/catch.hpp>
#include <set>

#include "table_support.h"

namespace gradwire::control {
namespace {

using test::join_body;
using test::local_address;
using test::rank_info;
using test::table_of;

/// Wants the join refused with `code` and a text that has `says`.
void refused(const ipc::JoinBody& join, ErrorCode code, const std::string& says) {
  const auto result = check_join(join, rank_info(0));
  INFO("expected: " << says);
  REQUIRE_FALSE(result);
  CHECK(result.error().code == code);
  CHECK_THAT(result.error().message, Catch::Contains(says));
}

/// "10.0.0.1-10.0.0.2 ...": upstream's and downstream's address of each pair.
std::string pairs(const ipc::RankInfo& upstream, const ipc::RankInfo& downstream) {
  std::string text;
  for (const AddressPair& pair : common_addresses(upstream, downstream)) {
    text += (text.empty() ? "" : " ") + wire::to_string(pair.upstream) + "-" +
            wire::to_string(pair.downstream);
  }
  return text;
}

}  // namespace

TEST_CASE("an own entry has what the daemon is") {
  const std::vector<LocalAddress> addresses = {local_address(0, "10.0.0.1"),
                                               local_address(1, "10.1.0.1", 16)};
  const ipc::RankInfo info = make_rank_info(test::daemon_info(7), 3, addresses);
  CHECK(info.magic == ipc::RankInfo::kMagic);
  CHECK(info.incarnation == 7);
  CHECK(info.lanes == 3);
  CHECK(info.base_udp_port == 18515);
  CHECK(info.address_count == 2);
  CHECK(addresses_text(info) == "10.0.0.1/24, 10.1.0.1/16");
  const std::vector<LocalAddress> many(20, local_address(0, "10.0.0.1"));
  CHECK(make_rank_info(test::daemon_info(7), 1, many).address_count ==
        ipc::RankInfo::kMaxAddresses);
}

TEST_CASE("a good table is agreed on: the least payload, the fewest lanes") {
  auto table = table_of(4);
  table[2].max_payload_bytes = 1400;
  table[3].lanes = 1;
  const auto agreement = check_join(join_body(0, table), rank_info(0));
  REQUIRE(agreement);
  CHECK(agreement->payload_bytes == 1344);
  CHECK(agreement->lanes == 1);
}

TEST_CASE("a join out of bounds is refused by name") {
  auto join = join_body(0, table_of(2));
  join.request.group_id = 0;
  refused(join, ErrorCode::kInvalidArgument, "group id 0");
  join = join_body(0, table_of(2));
  join.request.rank = 2;
  refused(join, ErrorCode::kInvalidArgument, "rank 2 in a group of 2");
  refused(join_body(0, table_of(2), 0, 0), ErrorCode::kInvalidArgument, "0 members");
  refused(join_body(0, table_of(2), 0, kMaxMembers + 1), ErrorCode::kInvalidArgument, "65 members");
  refused(join_body(0, table_of(2), 3, 3), ErrorCode::kInvalidArgument, "member 3 in a rank of 3");
}

TEST_CASE("a bad entry is refused by rank and field") {
  const auto with = [](auto change) {
    auto table = table_of(3);
    change(table[2]);
    return join_body(0, table);
  };
  const ErrorCode invalid = ErrorCode::kInvalidArgument;
  refused(with([](auto& e) { e.magic = 1; }), invalid, "entry of rank 2 has magic");
  refused(with([](auto& e) { e.version = 1; }), invalid, "version 1 and 512 bytes");
  refused(with([](auto& e) { e.bytes = 224; }), invalid, "version 3 and 224 bytes");
  refused(with([](auto& e) { e.incarnation = 0; }), invalid, "rank 2 has incarnation 0");
  refused(with([](auto& e) { e.lanes = 0; }), invalid, "rank 2 has 0 lanes");
  refused(with([](auto& e) { e.lanes = kMaxLanes + 1; }), invalid, "rank 2 has 17 lanes");
  refused(with([](auto& e) { e.max_payload_bytes = 63; }), invalid, "payloads of 63");
  refused(with([](auto& e) { e.base_udp_port = 0; }), invalid, "base UDP port 0");
  refused(with([](auto& e) { e.base_udp_port = 65535; }), invalid, "base UDP port 65535");
  refused(with([](auto& e) { e.address_count = 9; }), invalid, "9 addresses");
  refused(with([](auto& e) { e.source_ports = 3; }), invalid, "rank 2 says 3 of source ports");
  refused(with([](auto& e) { e.two_step_owner = 2; }), invalid, "rank 2 is 2 times an owner");
  refused(with([](auto& e) { e.addresses[0].family = 5; }), invalid, "family 5");
  refused(with([](auto& e) { e.addresses[0].prefix_bits = 33; }), invalid, "33 prefix bits");
  const auto features = [&](std::uint32_t value, const char* text) {
    refused(with([&](auto& e) { e.features = value; }), ErrorCode::kMismatch, text);
  };
  features(1, "transport.eager_packets is 1 at rank 2 and 0 at rank 0");
  features(512u << 16, "transport.exchange_kib is 512 at rank 2 and 0 at rank 0");
  features(collective::kNoPayloadCrcFeature,
           "transport.integrity is link at rank 2 and payload at rank 0");
  features(collective::kTokenFeature,
           "the gradwired of rank 0 is of an older release than that of rank 2");
  refused(with([](auto& e) { e.incarnation = 101; }), invalid, "ranks 1 and 2 are the same daemon");
}

TEST_CASE("this daemon must stand at its own rank, unchanged") {
  refused(join_body(1, table_of(2)), ErrorCode::kMismatch, "rank 0 there");
  auto table = table_of(2);
  table[0].incarnation = 999;
  refused(join_body(0, table), ErrorCode::kMismatch, "not in the table");
  table = table_of(2);
  table[0].addresses[0].ip[3] = 77;
  refused(join_body(0, table), ErrorCode::kMismatch, "was changed");
  table = table_of(2);
  table[0].secret ^= 1;
  refused(join_body(0, table), ErrorCode::kPermission, "made for another user");
}

TEST_CASE("each link has its own token, and it follows from what only a table's readers know") {
  const auto table = table_of(3);
  const GroupKey key = {1, 2};
  std::set<std::uint64_t> seen;
  const auto fresh = [&](std::uint64_t token) { CHECK(seen.insert(token).second); };
  for (const std::uint16_t from : {0, 1, 2}) {
    for (const std::uint16_t to : {0, 1, 2}) {
      for (const std::uint8_t lane : {0, 1}) {
        if (from != to) fresh(link_token(key, lane, from, to, table));
      }
    }
  }
  CHECK(link_token(key, 0, 0, 1, table) == link_token(key, 0, 0, 1, table_of(3)));
  fresh(link_token({2, 2}, 0, 0, 1, table));
  fresh(link_token({1, 3}, 0, 0, 1, table));
  auto changed = table;
  changed[1].secret ^= 1;
  fresh(link_token(key, 0, 0, 1, changed));
  fresh(link_token(key, 0, 1, 2, changed));
  // A daemon that was started again has other links.
  auto restarted = table;
  restarted[1].incarnation ^= 1;
  fresh(link_token(key, 0, 0, 1, restarted));
  fresh(link_token(key, 0, 1, 0, restarted));
  // A rank that neither end is changes nothing: the two hear each other say what differs.
  CHECK(link_token(key, 0, 2, 0, changed) == link_token(key, 0, 2, 0, table));
}

TEST_CASE("what one rank sends is what the other expects, on every lane") {
  const GroupKey key = {1, 2};
  for (const std::uint16_t nranks : {2, 3}) {
    const auto table = table_of(nranks);
    for (std::uint16_t rank = 0; rank < nranks; ++rank) {
      const auto next = static_cast<std::uint16_t>((rank + 1) % nranks);
      const auto here = neighbor_tokens(key, 2, rank, table);
      const auto there = neighbor_tokens(key, 2, next, table);
      REQUIRE(here.size() == 2);
      for (std::size_t lane = 0; lane < 2; ++lane) {
        CHECK(here[lane].downstream.to == there[lane].upstream.from);
        CHECK(here[lane].downstream.from == there[lane].upstream.to);
        CHECK((here[lane].downstream == here[lane].upstream) == (nranks == 2));
      }
    }
  }
}

TEST_CASE("a secret is one user's") {
  const SipHashKey daemon = {1, 2};
  CHECK(secret_for(daemon, 500) == secret_for(daemon, 500));
  CHECK(secret_for(daemon, 500) != secret_for(daemon, 501));
  CHECK(secret_for(daemon, 500) != secret_for({1, 3}, 500));
  const auto one = random_secret(), other = random_secret();
  REQUIRE((one && other));
  CHECK((one->k0 != other->k0 && one->k1 != other->k1));
}

TEST_CASE("the digest depends on everything, and on nothing else") {
  const auto table = table_of(3);
  const GroupKey key = {1, 2};
  const Agreement agreement = {8192, 2, 0};
  const std::uint64_t digest = table_digest(key, 1, agreement, table);
  CHECK(digest == table_digest(key, 1, agreement, table));
  std::set<std::uint64_t> seen = {digest};
  const auto fresh = [&](std::uint64_t d) { CHECK(seen.insert(d).second); };
  using Use = GroupUse;
  for (const Use& use : {Use{0, true, 0}, Use{0, true, 1}, Use{.transfers_alone = true}}) {
    fresh(table_digest(key, 1, agreement, table, use));
  }
  fresh(table_digest({2, 2}, 1, agreement, table));
  fresh(table_digest({1, 3}, 1, agreement, table));
  fresh(table_digest(key, 2, agreement, table));
  fresh(table_digest(key, 1, {4096, 2, 0}, table));
  fresh(table_digest(key, 1, {8192, 1, 0}, table));
  fresh(table_digest(key, 1, {8192, 2, 1}, table));
  fresh(table_digest(key, 1, agreement, std::span(table).first(2)));
  auto changed = table;
  std::swap(changed[1], changed[2]);
  fresh(table_digest(key, 1, agreement, changed));
  changed = table;
  changed[2].addresses[0].ip[3] ^= 1;
  fresh(table_digest(key, 1, agreement, changed));
  changed = table;
  changed[2].secret ^= 1;
  fresh(table_digest(key, 1, agreement, changed));
  changed = table;
  changed[2].base_udp_port ^= 1;
  fresh(table_digest(key, 1, agreement, changed));
  changed = table;
  changed[0].direct_kib = 64;
  fresh(table_digest(key, 1, agreement, changed));
  changed = table;
  changed[1].fold_sources = 3;
  fresh(table_digest(key, 1, agreement, changed));
  changed = table;
  changed[1].addresses[0].single_peer = 1;
  fresh(table_digest(key, 1, agreement, changed));
  // What this release does not use a later one may.
  changed = table;
  changed[1].checksum = 5;
  fresh(table_digest(key, 1, agreement, changed));
  changed = table;
  changed[1].keys[sizeof changed[1].keys - 1] = 1;
  fresh(table_digest(key, 1, agreement, changed));
  // Who is at which rank; and then each rank has a number of members of its own.
  Agreement placed = agreement;
  placed.layout = ProcessLayout::make(std::vector<std::uint16_t>{0, 1, 2, 1}, 3).value();
  const std::uint64_t uneven = table_digest(key, 1, placed, table);
  fresh(uneven);
  CHECK(uneven == table_digest(key, 2, placed, table));
  placed.layout = ProcessLayout::make(std::vector<std::uint16_t>{0, 1, 1, 2}, 3).value();
  fresh(table_digest(key, 1, placed, table));
}

TEST_CASE("a join with processes agrees on their layout, if it is not rank by rank") {
  auto join = join_body(0, table_of(2), 1, 2);
  join.ranks = {0, 0, 1, 1};
  auto agreement = check_join(join, rank_info(0));
  REQUIRE(agreement);
  CHECK_FALSE(agreement->layout);
  join.ranks = {0, 1, 0, 1};
  agreement = check_join(join, rank_info(0));
  REQUIRE(agreement);
  REQUIRE(agreement->layout);
  CHECK(agreement->layout->process_at(1) == 2);
  join.ranks = {0, 1, 0, 0};
  refused(join, ErrorCode::kInvalidArgument,
          "rank 0 joined with 2 members, but 3 of the group's processes are at that rank");
  join.ranks = {0, 0, 0};
  refused(join, ErrorCode::kInvalidArgument, "rank 1 has 0 processes, must have 1 to 64");
}

TEST_CASE("a table of 1,024 ranks is checked, and a daemon that is in it twice is found") {
  auto join = join_body(0, table_of(kMaxRanks));
  const auto agreement = check_join(join, rank_info(0));
  REQUIRE(agreement);
  const std::uint64_t digest = table_digest({1, 2}, 1, *agreement, join.table);
  auto other = join.table;
  other[1023].incarnation ^= 1;
  CHECK(table_digest({1, 2}, 1, *agreement, other) != digest);
  CHECK_THAT(difference(join.table, other), Catch::Contains("rank 1023 is daemon"));
  join.table[1023].incarnation = join.table[17].incarnation;
  join.table[1023].checksum = checksum_of(join.table[1023]);
  refused(join, ErrorCode::kInvalidArgument, "ranks 17 and 1023 are the same daemon");
}

TEST_CASE("a difference is told by rank") {
  const auto table = table_of(3);
  CHECK(difference(table, table).empty());
  auto other = table;
  other[1].incarnation = 5;
  CHECK_THAT(difference(table, other), Catch::Contains("rank 1 is daemon"));
  other = table;
  other[2].addresses[0].ip[3] = 200;
  CHECK_THAT(difference(table, other), Catch::Contains("10.0.0.200/24"));
  CHECK_THAT(difference(table, table_of(2)), Catch::Contains("3 ranks against 2"));
}

TEST_CASE("both ends choose the same addresses") {
  const std::vector<LocalAddress> of_a = {
      local_address(0, "192.168.1.1"), local_address(1, "10.0.0.1"), local_address(2, "10.5.0.1")};
  const std::vector<LocalAddress> of_b = {
      local_address(0, "10.5.0.2"), local_address(1, "10.0.0.2"), local_address(2, "10.0.0.3")};
  const auto a = make_rank_info(test::daemon_info(1), 1, of_a);
  const auto b = make_rank_info(test::daemon_info(2), 1, of_b);
  CHECK(pairs(a, b) == "10.0.0.1-10.0.0.2 10.5.0.1-10.5.0.2");
  CHECK(pairs(b, a) == "10.5.0.2-10.5.0.1 10.0.0.2-10.0.0.1");
}

TEST_CASE("two ports of one network are two rails, each address once") {
  const std::vector<LocalAddress> of_a = {local_address(0, "10.0.0.1"),
                                          local_address(1, "10.0.0.3")};
  const std::vector<LocalAddress> of_b = {
      local_address(0, "10.0.0.2"), local_address(1, "10.0.0.4"), local_address(2, "10.0.0.6")};
  const auto a = make_rank_info(test::daemon_info(1), 2, of_a);
  const auto b = make_rank_info(test::daemon_info(2), 2, of_b);
  CHECK(pairs(a, b) == "10.0.0.1-10.0.0.2 10.0.0.3-10.0.0.4");
  CHECK(pairs(b, a) == "10.0.0.2-10.0.0.1 10.0.0.4-10.0.0.3");
}

TEST_CASE("a neighbor has a path for each common network") {
  const std::vector<LocalAddress> of_a = {local_address(4, "10.0.0.1"),
                                          local_address(7, "10.5.0.1")};
  const std::vector<LocalAddress> of_b = {local_address(0, "10.5.0.2"),
                                          local_address(1, "10.0.0.2")};
  const auto a = make_rank_info(test::daemon_info(1), 2, of_a);
  const auto b = make_rank_info(test::daemon_info(2), 2, of_b);
  const std::vector<ipc::RankInfo> table = {a, b};
  const auto down = neighbor_paths(0, 1, true, table, a, of_a);
  REQUIRE(down);
  REQUIRE(down->size() == 2);
  CHECK((*down)[0].port == 4);
  CHECK((*down)[1].port == 7);
  CHECK(wire::to_string((*down)[1].remote_ip) == "10.5.0.2");
  CHECK(path_of(*down, 2).port == 4);
  // Rank 1 sends here: its order counts.
  const auto up = neighbor_paths(0, 1, false, table, a, of_a);
  REQUIRE(up);
  REQUIRE(up->size() == 2);
  CHECK((*up)[0].port == 7);
}

TEST_CASE("addresses of different networks are paired if both have a route, in their order") {
  auto routed = [](std::uint16_t port, const std::string& ip, std::string_view rail = {}) {
    LocalAddress address = local_address(port, ip);
    address.routed = true;
    address.rail = rail_hash(rail);
    return address;
  };
  const auto info = [](std::uint64_t incarnation, std::vector<LocalAddress> addresses) {
    return make_rank_info(test::daemon_info(incarnation), 2, addresses);
  };
  const auto a = info(1, {routed(0, "10.1.0.1"), routed(1, "10.2.0.1")});
  CHECK(pairs(a, info(2, {routed(0, "10.3.0.1"), routed(1, "10.4.0.1")})) ==
        "10.1.0.1-10.3.0.1 10.2.0.1-10.4.0.1");
  // One network in common: it is used, and routes take what is left.
  CHECK(pairs(a, info(2, {routed(0, "10.3.0.1"), routed(1, "10.1.0.2")})) ==
        "10.1.0.1-10.1.0.2 10.2.0.1-10.3.0.1");
  // No route back.
  CHECK(pairs(a, info(2, {local_address(0, "10.3.0.1")})).empty());
  CHECK(pairs(info(2, {local_address(0, "10.3.0.1")}), a).empty());

  // Names go before networks and order; different ones are never paired.
  const auto named = info(3, {routed(0, "10.1.0.1", "left"), routed(1, "10.2.0.1", "right")});
  CHECK(pairs(named, info(4, {routed(0, "10.2.0.9", "left"), routed(1, "10.1.0.9", "right")})) ==
        "10.1.0.1-10.2.0.9 10.2.0.1-10.1.0.9");
  CHECK(pairs(named, info(4, {routed(0, "10.1.0.9", "middle")})).empty());
  CHECK(pairs(named, info(4, {routed(0, "10.9.0.9")})) == "10.1.0.1-10.9.0.9");
  CHECK(rail_hash("") == 0);
  CHECK(rail_hash("left") != rail_hash("right"));
}

TEST_CASE("an error says that rails' names keep two ranks apart, if they do") {
  std::vector<LocalAddress> left = {local_address(0, "10.1.0.1")};
  std::vector<LocalAddress> right = {local_address(0, "10.1.0.2")};
  const auto why = [&] {
    const std::vector<ipc::RankInfo> table = {make_rank_info(test::daemon_info(1), 1, left),
                                              make_rank_info(test::daemon_info(2), 1, right)};
    return neighbor_paths(0, 1, true, table, table[0], left).error().message;
  };
  left[0].rail = rail_hash("left");
  right[0].rail = rail_hash("right");
  CHECK_THAT(why(), Catch::Contains("on rails of the same name"));
  left[0].rail = right[0].rail = 0;
  right[0].ip = wire::parse_ip("10.2.0.2").value();
  CHECK_THAT(why(), Catch::Contains("cannot reach its downstream neighbor, rank 1 (10.2.0.2/24)") &&
                        !Catch::Contains("rails"));
}

TEST_CASE("an entry that says another route or rail is another table") {
  auto table = table_of(2);
  std::set<std::uint64_t> seen{table_digest({1, 1}, 1, {}, table)};
  table[1].addresses[0].routed = 1;
  CHECK(seen.insert(table_digest({1, 1}, 1, {}, table)).second);
  table[1].addresses[0].rail = 7;
  CHECK(seen.insert(table_digest({1, 1}, 1, {}, table)).second);
}

TEST_CASE("a network counts only if both prefixes say so") {
  const std::vector<LocalAddress> wide = {local_address(0, "10.0.1.1", 16)};
  const std::vector<LocalAddress> narrow = {local_address(0, "10.0.2.1", 24)};
  const auto a = make_rank_info(test::daemon_info(1), 1, wide);
  const auto b = make_rank_info(test::daemon_info(2), 1, narrow);
  CHECK(common_addresses(a, b).empty());
  CHECK(common_addresses(b, a).empty());
  CHECK(common_addresses(a, make_rank_info(test::daemon_info(3), 1, {})).empty());
}

TEST_CASE("addresses are paired with those of their own IP version") {
  const auto entry = [](std::vector<LocalAddress> addresses) {
    for (LocalAddress& address : addresses) address.routed = true;
    return make_rank_info(test::daemon_info(1), 1, addresses);
  };
  const auto both = entry({local_address(0, "10.0.0.1"), local_address(1, "fd00::1", 64)});
  const auto other = entry({local_address(0, "fd00:0:0:1::2", 64), local_address(1, "10.0.0.2")});
  CHECK(pairs(both, other) == "10.0.0.1-10.0.0.2 fd00::1-fd00:0:0:1::2");
  CHECK(pairs(entry({local_address(0, "10.0.0.3")}), other) == "10.0.0.3-10.0.0.2");
  CHECK(pairs(entry({local_address(0, "10.0.0.3")}), entry({local_address(0, "fd00::3")})) == "");
}

}  // namespace gradwire::control
