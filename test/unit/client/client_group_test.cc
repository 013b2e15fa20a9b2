// SPDX-License-Identifier: BSD-3-Clause
// Groups: joining, leaving, aborts from here and elsewhere.
#include "fixture.h"

using namespace gradwire::test;
using namespace std::chrono_literals;

namespace {

struct Config : gw_group_config {
  std::vector<std::byte> infos;
  Config(gw_client* client, std::uint16_t count)
      : gw_group_config{}, infos(count * GW_RANK_INFO_BYTES) {
    for (std::uint16_t i = 0; i < count; ++i) {
      REQUIRE(gw_client_describe(client, &infos[i * GW_RANK_INFO_BYTES], GW_RANK_INFO_BYTES) ==
              GW_OK);
    }
    struct_bytes = sizeof(gw_group_config);
    group_id = 1;
    nranks = count;
    timeout_ms = 100;
    rank_infos = infos.data();
    rank_infos_bytes = infos.size();
  }
};

}  // namespace

TEST_CASE("a group's bounds are checked before the daemon is asked") {
  Fixture fixture;
  gw_client* client = fixture.open();
  gw_group* group = nullptr;
  Config config(client, 1);
  const auto refused = [&](const char* word) {
    CHECK(gw_group_join(client, &config, &group) == GW_INVALID_ARGUMENT);
    CHECK_THAT(gw_last_error(), Catch::Contains(word));
  };
  config.rank = 1;
  refused("rank is 1 of 1");
  config.rank = 0;
  config.member = 2;
  config.member_count = 2;
  refused("member is 2 of 2");
  config.member_count = 65;
  refused("member_count is 65");
  config.member = config.member_count = 0;
  config.nranks = 2;
  refused("rank_infos_bytes is 512");
  config.nranks = 0;
  config.rank_infos_bytes = 0;
  refused("nranks is 0");
  config.nranks = 1;
  config.rank_infos_bytes = GW_RANK_INFO_BYTES;
  config.infos[0] = std::byte{0};
  refused("rank info of rank 0");
  config.struct_bytes = 8;
  refused("struct_bytes is 8");
  gw_close(client);
}

TEST_CASE("a join that nobody answers ends at its bound, and what comes late is left again") {
  gw_open_options options{};
  options.request_timeout_ms = 500;  // a busy machine opens in it
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0, options), fixture.open(1)};
  Config config(clients[0], 2);
  REQUIRE(gw_client_describe(clients[1], &config.infos[GW_RANK_INFO_BYTES], GW_RANK_INFO_BYTES) ==
          GW_OK);
  gw_group* group = nullptr;
  const double seconds =
      seconds_of([&] { CHECK(gw_group_join(clients[0], &config, &group) == GW_TIMED_OUT); });
  CHECK(seconds >= 0.15);
  CHECK(seconds < kAtOnce);
  // Now the other comes, and the first one's answer with it.
  Config other = config;
  other.rank_infos = other.infos.data();
  other.rank = 1;
  gw_group* second = nullptr;
  REQUIRE(gw_group_join(clients[1], &other, &second) == GW_OK);
  gw_memory* memory = nullptr;
  REQUIRE(gw_memory_alloc(clients[0], 1, &memory) == GW_OK);  // takes the late answer in
  CHECK(soon([&] { return fixture.daemon().leaves == 1; }));
  CHECK(gw_memory_free(memory) == GW_OK);
  gw_group_free(second);
  for (gw_client* client : clients) gw_close(client);
}

TEST_CASE("an abort reaches every rank with its reason") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto groups = join_all({clients[0], clients[1]});
  float x = 1.0f;
  gw_work* work = nullptr;
  REQUIRE(gw_all_reduce(groups[0], &x, &x, 1, GW_FLOAT32, GW_SUM, 0, &work) == GW_OK);
  REQUIRE(gw_group_abort(groups[1], "loss is not a number") == GW_OK);
  CHECK(gw_wait(work, kLong) == GW_ABORTED);
  CHECK_THAT(gw_last_error(), Catch::Contains("loss is not a number"));
  gw_work_free(work);
  for (gw_group* group : groups) {
    CHECK(soon([&] { return gw_group_error(group) == GW_ABORTED; }));
    CHECK_THAT(gw_last_error(), Catch::Contains("rank 1 aborted: loss is not a number"));
    CHECK(gw_all_reduce(group, &x, &x, 1, GW_FLOAT32, GW_SUM, 0, &work) == GW_ABORTED);
    CHECK(gw_group_leave(group) == GW_OK);
    gw_group_free(group);
  }
  for (gw_client* client : clients) gw_close(client);
}

TEST_CASE("after leaving nothing is posted; freeing leaves where that was not done") {
  Fixture fixture;
  gw_client* client = fixture.open();
  gw_group* left = join_all({client}, 1, 1)[0];
  gw_group* freed = join_all({client}, 1, 2)[0];
  CHECK(gw_group_leave(left) == GW_OK);
  CHECK(gw_group_leave(left) == GW_OK);
  CHECK(fixture.daemon().leaves == 1);
  gw_work* work = nullptr;
  CHECK(gw_all_reduce(left, nullptr, nullptr, 0, GW_INT8, GW_SUM, 0, &work) == GW_INVALID_ARGUMENT);
  CHECK_THAT(gw_last_error(), Catch::Contains("left"));
  gw_group_free(left);
  gw_group_free(freed);
  CHECK(soon([&] { return fixture.daemon().leaves == 2; }));
  gw_close(client);
}

TEST_CASE("a leave that takes longer than its bound says that it goes on") {
  Fixture fixture;
  gw_open_options options{};
  options.request_timeout_ms = 500;  // a busy machine opens in it
  gw_client* client = fixture.open(0, options);
  gw_group* group = join_all({client})[0];
  fixture.daemon().ignore_requests = true;
  CHECK(gw_group_leave(group) == GW_TIMED_OUT);
  CHECK_THAT(gw_last_error(), Catch::Contains("has not closed the group after 0.5 s"));
  gw_group_free(group);
  gw_close(client);
}

TEST_CASE("the death of one client is the other's abort") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto groups = join_all({clients[0], clients[1]});
  float x = 1.0f;
  gw_work* work = nullptr;
  REQUIRE(gw_all_reduce(groups[0], &x, &x, 1, GW_FLOAT32, GW_SUM, 0, &work) == GW_OK);
  gw_close(clients[1]);
  CHECK(gw_wait(work, kLong) == GW_ABORTED);
  CHECK_THAT(gw_last_error(), Catch::Contains("client of rank 1 died"));
  gw_work_free(work);
  for (gw_group* group : groups) gw_group_free(group);
  gw_close(clients[0]);
}

TEST_CASE("an op that is posted just before its group is freed ends as aborted") {
  Single single;
  single.fixture.daemon().hold_ops = true;
  gw_work* work = nullptr;
  REQUIRE(gw_barrier(single.group, 0, &work) == GW_OK);
  gw_group_free(single.group);
  single.group = nullptr;
  REQUIRE(soon([&] { return single.fixture.daemon().leaves == 1; }));
  // The daemon reads the command behind the leave.
  single.fixture.daemon().hold_ops = false;
  CHECK(gw_wait(work, kLong) == GW_ABORTED);
  CHECK_THAT(gw_last_error(), Catch::Contains("the group was left before the op was finished"));
  gw_work_free(work);
}
