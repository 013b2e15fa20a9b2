// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_client.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "ipc/unique_fd.h"
#include "memif_listener.h"

namespace gradwire::port {
namespace {

using Step = MemifClient::Step;
using Catch::Matchers::Contains;

constexpr TimeNs kSecond = 1'000'000'000;
constexpr std::uint16_t kQueues = 2;

struct Client {
  MemifEnd end{.client = true, .socket = path_of_this_process(), .abstract = true};
  MemifClient client{end, "net_memif0"};
  std::array<std::uint64_t, 2> rounds{};
  TimeNs now = kSecond;

  Step look(bool link_up) { return client.look(now, link_up, rounds); }
  /// A link that stays down, until the port is to be stopped.
  void wait_for_stop() {
    CHECK(look(false) == Step::kNone);
    now += 4 * kSecond;
    REQUIRE(look(false) == Step::kRelease);
    REQUIRE(look(false) == Step::kNone);
    for (std::uint64_t& made : rounds) made += 2;
    REQUIRE(look(false) == Step::kStop);
  }
};

}  // namespace

TEST_CASE("a memif client is started when a server listens") {
  Client at;
  REQUIRE_FALSE(at.client.may_start());
  CHECK(at.look(false) == Step::kNone);
  CHECK_THAT(at.client.why_down(), Contains("no memif server listens at " + at.end.socket));
  const ipc::UniqueFd server = listen_at(at.end);
  REQUIRE(at.look(false) == Step::kStart);
  CHECK_THAT(at.client.started(at.now), Contains("net_memif0: connected to the memif server"));
  CHECK(at.client.why_down() == "down");
  CHECK(at.look(true) == Step::kNone);
}

TEST_CASE("a memif client whose link goes down is stopped once lanes leave it alone") {
  Client at;
  std::optional<ipc::UniqueFd> server = listen_at(at.end);
  REQUIRE(at.client.may_start());
  at.client.begin(at.now);
  CHECK(at.look(true) == Step::kNone);
  // For some seconds the driver may still be connecting.
  at.now += kSecond;
  CHECK(at.look(false) == Step::kNone);
  at.now += kSecond;
  CHECK(at.look(false) == Step::kNone);
  at.now += 2 * kSecond;
  REQUIRE(at.look(false) == Step::kRelease);
  at.rounds = {2, 1};
  CHECK(at.look(false) == Step::kNone);
  at.rounds = {2, 2};
  server.reset();
  REQUIRE(at.look(false) == Step::kStop);
  CHECK_THAT(at.client.stopped(kQueues), Contains("the memif link went down"));
  CHECK(at.look(false) == Step::kNone);
}

TEST_CASE("a memif server that refuses a client twice is told of, and then a connection") {
  Client at;
  const ipc::UniqueFd server = listen_at(at.end);
  REQUIRE(at.client.may_start());
  at.client.begin(at.now);
  for (const bool told : {false, true}) {
    at.wait_for_stop();
    const std::string happened = at.client.stopped(kQueues);
    CHECK(happened.empty() != told);
    if (told) CHECK_THAT(happened, Contains("does not take this end with its 2 queue pairs"));
    REQUIRE(at.look(false) == Step::kStart);
    CHECK(at.client.started(at.now).empty());
  }
  CHECK(at.client.why_down() == "down: the memif server does not take this end");
  REQUIRE(at.look(true) == Step::kConnected);
  CHECK_THAT(at.client.connected(), Contains("connected to the memif server at " + at.end.socket));
  CHECK(at.look(true) == Step::kNone);
}

}  // namespace gradwire::port
