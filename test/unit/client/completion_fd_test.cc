// SPDX-License-Identifier: BSD-3-Clause
// gw_client_get_completion_fd(): readable for what somebody can still report, and for nothing else.
#include <poll.h>

#include <array>

#include "fixture.h"

using namespace gradwire::test;

namespace {

/// Two ranks and two groups of them; the first rank polls.
struct Polled {
  Fixture fixture{2};
  std::array<gw_client*, 2> clients{fixture.open(0), fixture.open(1)};
  std::vector<gw_group*> group = join_all({clients[0], clients[1]});
  std::vector<gw_group*> other = join_all({clients[0], clients[1]}, 1, 8);
  std::array<float, 8> values{};
  int fd = -1;

  Polled() {
    REQUIRE(gw_client_get_completion_fd(clients[0], &fd) == GW_OK);
    REQUIRE_FALSE(readable());
  }
  ~Polled() {
    for (gw_group* each : group) gw_group_free(each);
    for (gw_group* each : other) gw_group_free(each);
    for (gw_client* client : clients) gw_close(client);
  }
  [[nodiscard]] bool readable(int timeout_ms = 0) const {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }
  gw_work* post(std::vector<gw_group*>& groups, std::size_t rank, std::size_t at = 0) {
    gw_work* work = nullptr;
    float* const value = &values[4 * rank + at];
    const gw_status status =
        gw_all_reduce(groups[rank], value, value, 1, GW_FLOAT32, GW_SUM, 0, &work);
    INFO(gw_last_error());
    REQUIRE(status == GW_OK);
    return work;
  }
  /// The second rank's part of an op. When it has ended there, the first rank's has been told.
  void join_in(std::vector<gw_group*>& groups, std::size_t at = 0) {
    gw_work* const work = post(groups, 1, at);
    REQUIRE(gw_wait(work, kLong) == GW_OK);
    gw_work_free(work);
  }
  /// As an application does that polls.
  void expect_an_op_is_told(std::vector<gw_group*>& groups) {
    gw_work* const work = post(groups, 0, 3);
    join_in(groups, 3);
    int done = 0;
    while (done == 0) {
      REQUIRE(readable(2000));
      REQUIRE(gw_test(work, &done) == GW_OK);
    }
    gw_work_free(work);
    CHECK_FALSE(readable());
  }
};

}  // namespace

TEST_CASE("an op that was freed before its end makes nothing readable, and the next one does") {
  Polled polled;
  for (int i = 0; i < 3; ++i) {
    gw_work_free(polled.post(polled.group, 0));
    polled.join_in(polled.group);
    CHECK_FALSE(polled.readable());
    polled.expect_an_op_is_told(polled.group);
  }
}

TEST_CASE("of ops under way those that were freed are not told, and the others are") {
  Polled polled;
  gw_work* const kept = polled.post(polled.group, 0, 0);
  gw_work* const freed = polled.post(polled.other, 0, 1);
  gw_work_free(freed);
  polled.join_in(polled.other, 1);
  // It may have been readable for the other's sake, until somebody looks.
  int done = 1;
  REQUIRE(gw_test(kept, &done) == GW_OK);
  CHECK(done == 0);
  CHECK_FALSE(polled.readable());
  polled.join_in(polled.group);
  CHECK(polled.readable(2000));
  REQUIRE(gw_wait(kept, kLong) == GW_OK);
  gw_work_free(kept);
  CHECK_FALSE(polled.readable());
}

TEST_CASE("an op that has ended and is freed untold makes the descriptor rest") {
  Polled polled;
  gw_work* const work = polled.post(polled.group, 0);
  polled.join_in(polled.group);
  REQUIRE(polled.readable(2000));
  gw_work_free(work);
  CHECK_FALSE(polled.readable());
  polled.expect_an_op_is_told(polled.group);
}

TEST_CASE("a group that was aborted and is freed makes the descriptor rest") {
  Polled polled;
  REQUIRE(gw_group_abort(polled.group[1], "enough") == GW_OK);
  REQUIRE(polled.readable(2000));
  gw_group_free(polled.group[0]);
  polled.group[0] = nullptr;
  CHECK_FALSE(polled.readable());
  // Nor does the daemon's answer to the leave come where nobody waits for it.
  REQUIRE(soon([&] { return polled.fixture.daemon().leaves == 1; }));
  polled.expect_an_op_is_told(polled.other);
}

TEST_CASE("the abort of a group that was freed is nobody's") {
  Polled polled;
  polled.fixture.daemon().hold_ops = true;
  gw_work_free(polled.post(polled.group, 0));
  gw_group_free(polled.group[0]);
  polled.group[0] = nullptr;
  REQUIRE(gw_group_abort(polled.group[1], "enough") == GW_OK);
  polled.fixture.daemon().hold_ops = false;
  // Behind the other's end in the same queue.
  polled.expect_an_op_is_told(polled.other);
  CHECK(counters_of(polled.clients[0]).ops_failed == 1);
  CHECK_FALSE(polled.readable());
}

TEST_CASE("who polls and has nothing to test takes in by gw_flush() what has come") {
  Polled polled;
  gw_work* const work = polled.post(polled.group, 0);
  polled.join_in(polled.group);
  REQUIRE(polled.readable(2000));
  REQUIRE(gw_flush(polled.clients[0]) == GW_OK);
  CHECK(polled.readable());  // it is still to be told
  CHECK(gw_wait(work, 0) == GW_OK);
  CHECK_FALSE(polled.readable());
  gw_work_free(work);
}

TEST_CASE("a client without groups is told that its daemon has gone") {
  Polled polled;
  for (auto* groups : {&polled.group, &polled.other}) {
    for (gw_group*& each : *groups) {
      gw_group_free(each);
      each = nullptr;
    }
  }
  CHECK_FALSE(polled.readable());
  polled.fixture.kill_daemon();
  CHECK(polled.readable(1000));
}
