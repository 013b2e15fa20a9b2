// SPDX-License-Identifier: BSD-3-Clause
#include "tcp/tcp_rendezvous.h"

#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <vector>

using namespace gradwire;
using namespace gradwire::perf;

namespace {

/// A port that was free a moment ago.
std::string free_place() {
  const auto listener = tcp_listen("127.0.0.1", 0, {});
  return "tcp://127.0.0.1:" + std::to_string(*tcp_port(*listener));
}

Options options_of(const std::string& where, std::uint16_t rank, std::uint16_t member,
                   double timeout_s = 10) {
  Options options;
  options.rendezvous = where;
  options.rank = rank;
  options.nranks = 3;
  options.member = member;
  options.members = 2;
  options.timeout_s = timeout_s;
  return options;
}

std::future<Result<Meeting>> come(Options options) {
  return std::async(std::launch::async, [options] {
    const auto info = static_cast<std::byte>(10 * options.rank + options.member);
    return meet(options, std::vector<std::byte>(5, info));
  });
}

}  // namespace

TEST_CASE("all ranks get the table, in rank order, of the first members, and one id") {
  const std::string where = free_place();
  std::vector<std::future<Result<Meeting>>> all;
  for (const std::uint16_t rank : {2, 1, 0}) {
    for (const std::uint16_t member : {1, 0}) all.push_back(come(options_of(where, rank, member)));
  }
  std::optional<std::uint64_t> id;
  for (auto& one : all) {
    const auto meeting = one.get();
    REQUIRE(meeting.has_value());
    REQUIRE(meeting->rank_infos.size() == 15);
    for (std::size_t i = 0; i < 15; ++i) {
      CHECK(meeting->rank_infos[i] == static_cast<std::byte>(i / 5 * 10));
    }
    CHECK(id.value_or(meeting->group_id) == meeting->group_id);
    id = meeting->group_id;
  }
}

TEST_CASE("who does not come is named, and a stranger is not taken for it") {
  const std::string where = free_place();
  auto host = come(options_of(where, 0, 0, 1.0));
  auto guest = come(options_of(where, 1, 0, 1.0));
  const auto place = parse_tcp_rendezvous(where);
  const auto soon = Clock::now() + std::chrono::seconds(1);
  auto stranger = tcp_connect(place->first, place->second, {}, soon);
  REQUIRE(stranger.has_value());
  CHECK(tcp_send_all(*stranger, std::vector<std::byte>(100, std::byte{0x55}), soon).has_value());
  const auto met = host.get();
  REQUIRE_FALSE(met.has_value());
  CHECK(met.error().code == ErrorCode::kTimedOut);
  CHECK_THAT(met.error().message, Catch::Contains("rank 0 member 1 did not come"));
  CHECK_FALSE(guest.get().has_value());
}

TEST_CASE("two that say they are the same are told so") {
  const std::string where = free_place();
  auto host = come(options_of(where, 0, 0));
  auto one = come(options_of(where, 1, 1, 2.0));
  auto same = come(options_of(where, 1, 1, 2.0));
  const auto met = host.get();
  REQUIRE_FALSE(met.has_value());
  CHECK_THAT(met.error().message, Catch::Contains("rank 1 member 1"));
  CHECK_FALSE(one.get().has_value());
  CHECK_FALSE(same.get().has_value());
}

TEST_CASE("places are tcp://HOST:PORT") {
  const auto place = parse_tcp_rendezvous("tcp://h0:18500");
  REQUIRE(place.has_value());
  CHECK(place->first == "h0");
  CHECK(place->second == 18500);
  CHECK(parse_tcp_rendezvous("tcp://[fd00::1]:7")->first == "fd00::1");
  for (const char* bad : {"tcp://", "tcp://h0", "tcp://h0:", "tcp://:1", "tcp://h0:0",
                          "tcp://h0:70000", "tcp://h0:1x", "tcp://[]:5"}) {
    INFO(bad);
    CHECK_FALSE(parse_tcp_rendezvous(bad).has_value());
  }
}
