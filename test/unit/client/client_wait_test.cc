// SPDX-License-Identifier: BSD-3-Clause
// Waiting: threads that share a client, the completion descriptor, daemons that die or say nothing,
// forks.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "fixture.h"

using namespace gradwire::test;
using namespace std::chrono_literals;

namespace {

bool is_readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

gw_work* post(gw_group* group, float* x, std::size_t count = 1) {
  gw_work* work = nullptr;
  const gw_status status = gw_all_reduce(group, x, x, count, GW_FLOAT32, GW_SUM, 0, &work);
  INFO(gw_last_error());
  REQUIRE(status == GW_OK);
  return work;
}

}  // namespace

TEST_CASE("many threads wait on one client, each for an op that another thread posted") {
  Single single;
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kRounds = 200;
  std::vector<float> x(kThreads * kRounds, 1.0f);
  std::vector<std::atomic<gw_work*>> works(x.size());
  std::atomic<std::size_t> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < works.size(); i += kThreads) {
        gw_work* work;
        while ((work = works[i].load()) == nullptr) std::this_thread::yield();
        if (gw_wait(work, kLong) != GW_OK) ++failures;
        gw_work_free(work);
      }
    });
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    gw_work* work = nullptr;
    while (gw_all_reduce(single.group, &x[i], &x[i], 1, GW_FLOAT32, GW_SUM, 0, &work) == GW_BUSY) {
      std::this_thread::yield();
    }
    works[i] = work;
  }
  for (auto& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(counters_of(single.client).ops_done == x.size());
}

TEST_CASE("a waiting thread is woken when another takes its completion in") {
  gw_open_options options{};
  options.spin_us = 1;
  Single single(options);
  single.fixture.daemon().hold_ops = true;
  float x[2] = {1.0f, 2.0f};
  gw_work* a = post(single.group, &x[0]);
  gw_work* b = post(single.group, &x[1]);
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (gw_work* work : {a, b}) {
    threads.emplace_back([&done, work] { done += gw_wait(work, kLong) == GW_OK ? 1 : 0; });
  }
  CHECK(soon([&] { return counters_of(single.client).sleeps == 2; }));
  CHECK(done == 0);
  const double seconds = seconds_of([&] {
    single.fixture.daemon().hold_ops = false;
    for (auto& thread : threads) thread.join();
  });
  CHECK(done == 2);
  CHECK(seconds < kAtOnce);
  gw_work_free(a);
  gw_work_free(b);
}

TEST_CASE("a transfer that takes too long says for whom the daemon waits") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto groups = join_all({clients[0], clients[1]});
  float value = 0;
  gw_work* work = nullptr;
  REQUIRE(gw_recv(groups[0], &value, 1, GW_FLOAT32, 1, 0, &work) == GW_OK);
  CHECK(gw_wait(work, 20) == GW_TIMED_OUT);
  CHECK_THAT(gw_last_error(), Catch::Contains("recv 1 of rank 0") &&
                                  Catch::Contains("; the daemon says: ") &&
                                  Catch::Contains("upstream rank 1"));
  gw_work_free(work);
  for (gw_group* group : groups) gw_group_free(group);
  for (gw_client* client : clients) gw_close(client);
}

TEST_CASE("a call that ended while the daemon was asked about it does not go on") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto groups = join_all({clients[0], clients[1]});
  fixture.daemon().abort_if_asked = true;
  float value = 0;
  gw_work* work = nullptr;
  REQUIRE(gw_recv(groups[0], &value, 1, GW_FLOAT32, 1, 0, &work) == GW_OK);
  CHECK(gw_wait(work, 20) == GW_ABORTED);
  gw_work_free(work);
  for (gw_group* group : groups) gw_group_free(group);
  for (gw_client* client : clients) gw_close(client);
}

TEST_CASE("the completion descriptor is readable while there is something to report") {
  Single single;
  int fd = -1;
  REQUIRE(gw_client_get_completion_fd(single.client, &fd) == GW_OK);
  CHECK_FALSE(is_readable(fd, 0));
  single.fixture.daemon().hold_ops = true;
  float x[2] = {1.0f, 1.0f};
  gw_work* works[2] = {post(single.group, &x[0]), post(single.group, &x[1])};
  int done = 1;
  CHECK(gw_test(works[0], &done) == GW_OK);
  CHECK(done == 0);
  CHECK_FALSE(is_readable(fd, 20));
  single.fixture.daemon().hold_ops = false;
  for (gw_work* work : works) {
    done = 0;
    while (done == 0) {
      REQUIRE(is_readable(fd, 2000));
      REQUIRE(gw_test(work, &done) == GW_OK);
    }
  }
  CHECK_FALSE(is_readable(fd, 0));
  for (gw_work* work : works) gw_work_free(work);

  gw_work* forgotten = post(single.group, &x[0]);
  REQUIRE(is_readable(fd, 2000));
  gw_work_free(forgotten);
  CHECK(gw_group_error(single.group) == GW_OK);
  REQUIRE(gw_group_abort(single.group, "enough") == GW_OK);
  REQUIRE(is_readable(fd, 2000));
  while (gw_group_error(single.group) == GW_OK) std::this_thread::yield();
  CHECK_FALSE(is_readable(fd, 0));
  single.fixture.kill_daemon();
  CHECK(is_readable(fd, 1000));
}

TEST_CASE("a daemon that dies ends every wait and every call within a second") {
  Single single;
  single.fixture.daemon().hold_ops = true;
  float x[3] = {1.0f, 1.0f, 1.0f};
  gw_work* waited = post(single.group, &x[0]);
  gw_work* tested = post(single.group, &x[1]);
  gw_memory* memory = nullptr;
  REQUIRE(gw_memory_alloc(single.client, 100, &memory) == GW_OK);
  gw_status status = GW_OK;
  std::string text;
  std::thread waiter([&] {
    status = gw_wait(waited, 20000);
    text = gw_last_error();
  });
  std::this_thread::sleep_for(50ms);
  const double seconds = seconds_of([&] {
    single.fixture.kill_daemon();
    waiter.join();
  });
  CHECK(seconds < kAtOnce);
  CHECK(status == GW_UNAVAILABLE);
  CHECK_THAT(text, Catch::Contains("went away"));
  int done = 0;
  CHECK(gw_test(tested, &done) == GW_UNAVAILABLE);
  CHECK(done == 1);
  gw_work* none = nullptr;
  CHECK(gw_all_reduce(single.group, &x[2], &x[2], 1, GW_FLOAT32, GW_SUM, 0, &none) ==
        GW_UNAVAILABLE);
  gw_memory* more = nullptr;
  CHECK(gw_memory_alloc(single.client, 100, &more) == GW_UNAVAILABLE);
  CHECK(gw_group_error(single.group) == GW_UNAVAILABLE);
  CHECK(gw_group_leave(single.group) == GW_UNAVAILABLE);
  static_cast<char*>(gw_memory_address(memory))[99] = 1;  // still mapped
  CHECK(gw_memory_free(memory) == GW_OK);
  gw_work_free(waited);
  gw_work_free(tested);
}

TEST_CASE("a client that only posts or tests notices the daemon's death too") {
  Single single;
  single.fixture.daemon().hold_ops = true;
  float x = 1.0f;
  gw_work* work = post(single.group, &x);
  single.fixture.kill_daemon();
  gw_status status = GW_OK;
  const double seconds = seconds_of([&] {
    int done = 0;
    while (done == 0) status = gw_test(work, &done);
  });
  CHECK(status == GW_UNAVAILABLE);
  CHECK(seconds < kAtOnce);
  gw_work_free(work);
}

TEST_CASE("a daemon that says nothing is an error when the bound has passed") {
  gw_open_options options{};
  options.request_timeout_ms = 500;  // a busy machine opens and joins in it
  Single single(options);
  gw_memory* memory = nullptr;
  REQUIRE(gw_memory_alloc(single.client, 100, &memory) == GW_OK);
  single.fixture.daemon().ignore_requests = true;
  gw_memory* more = nullptr;
  const double seconds =
      seconds_of([&] { CHECK(gw_memory_alloc(single.client, 100, &more) == GW_TIMED_OUT); });
  CHECK(seconds >= 0.5);
  CHECK(seconds < kAtOnce);
  CHECK_THAT(gw_last_error(), Catch::Contains("did not answer 'allocate'"));
  CHECK(gw_memory_free(memory) == GW_TIMED_OUT);
  CHECK(gw_memory_free(memory) == GW_TIMED_OUT);  // asks no second time
  CHECK(single.fixture.daemon().frees == 1);
  CHECK(gw_group_leave(single.group) == GW_TIMED_OUT);

  gw_client* client = nullptr;
  options.struct_bytes = sizeof(options);
  options.connect_timeout_ms = 100;
  CHECK(gw_open(single.fixture.path().c_str(), &options, &client) == GW_TIMED_OUT);
  size_t needed = 0;
  CHECK(gw_daemon_status(single.fixture.path().c_str(), 100, nullptr, 0, &needed) == GW_TIMED_OUT);
  single.fixture.kill_daemon();
  CHECK(gw_memory_free(memory) == GW_OK);
}

TEST_CASE("a completion that cannot be is the end of the connection, not of the process") {
  Single single;
  single.fixture.daemon().forge_completion = true;
  REQUIRE(soon([&] { return !single.fixture.daemon().forge_completion; }));
  std::this_thread::sleep_for(20ms);
  float x = 1.0f;
  gw_work* work = nullptr;
  CHECK(gw_all_reduce(single.group, &x, &x, 1, GW_FLOAT32, GW_SUM, 0, &work) == GW_UNAVAILABLE);
  CHECK_THAT(gw_last_error(), Catch::Contains("an op that was not posted"));
}

TEST_CASE("a client that the daemon cuts off says why") {
  Single single;
  single.fixture.daemon().hold_ops = true;
  float x = 1.0f;
  gw_work* work = post(single.group, &x);
  single.fixture.daemon().cut_off = true;
  CHECK(gw_wait(work, 5000) == GW_UNAVAILABLE);
  CHECK_THAT(gw_last_error(), Catch::Contains("ended the connection: this client wore a hat"));
  gw_work_free(work);
  gw_work* none = nullptr;
  CHECK(gw_all_reduce(single.group, &x, &x, 1, GW_FLOAT32, GW_SUM, 0, &none) == GW_UNAVAILABLE);
  CHECK_THAT(gw_last_error(), Catch::Contains("wore a hat"));
}

TEST_CASE("closing a client ends the waits of its other threads") {
  Fixture fixture;
  gw_client* client = fixture.open();
  gw_group* group = join_all({client})[0];
  fixture.daemon().hold_ops = true;
  float x = 1.0f;
  gw_work* work = post(group, &x);
  gw_status status = GW_OK;
  std::thread waiter([&] { status = gw_wait(work, 20000); });
  std::this_thread::sleep_for(50ms);
  const double seconds = seconds_of([&] {
    gw_close(client);
    waiter.join();
  });
  CHECK(status == GW_UNAVAILABLE);
  CHECK(seconds < kAtOnce);
  CHECK(gw_wait(work, 0) == GW_UNAVAILABLE);
  CHECK(gw_group_error(group) == GW_UNAVAILABLE);
  gw_work_free(work);
  gw_group_free(group);
}

TEST_CASE("a fork's child cannot use its parent's handles, nor keep the connection alive") {
  Fixture fixture(2);
  gw_client* clients[2] = {fixture.open(0), fixture.open(1)};
  const auto groups = join_all({clients[0], clients[1]});
  float x = 1.0f;
  gw_work* work = post(groups[0], &x);
  int to_child[2];
  REQUIRE(::pipe(to_child) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(to_child[1]);
    int done = 0;
    gw_memory* memory = nullptr;
    int failures = 0;
    failures += gw_test(work, &done) != GW_UNAVAILABLE;
    failures += gw_wait(work, 1000) != GW_UNAVAILABLE;
    failures += gw_memory_alloc(clients[0], 1, &memory) != GW_UNAVAILABLE;
    failures += std::string(gw_last_error()).find("fork") == std::string::npos;
    gw_client_info info{};
    info.struct_bytes = sizeof(info);
    failures += gw_client_get_info(clients[0], &info) != GW_UNAVAILABLE;
    gw_work_free(work);
    gw_group_free(groups[0]);
    gw_close(clients[0]);
    char byte;
    (void)!::read(to_child[0], &byte, 1);  // lives until the parent has looked
    ::_exit(failures);
  }
  ::close(to_child[0]);
  // The parent goes on as if nothing had been.
  float y = 2.0f;
  gw_work* other = post(groups[1], &y);
  CHECK(gw_wait(work, kLong) == GW_OK);
  CHECK(gw_wait(other, kLong) == GW_OK);
  CHECK(x == 3.0f);
  // And the daemon notices its end although the child lives.
  gw_work_free(work);
  gw_close(clients[0]);
  CHECK(soon([&] { return gw_group_error(groups[1]) == GW_ABORTED; }));
  CHECK_THAT(gw_last_error(), Catch::Contains("died"));
  ::close(to_child[1]);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  gw_work_free(other);
  for (gw_group* group : groups) gw_group_free(group);
  gw_close(clients[1]);
}

TEST_CASE("a daemon that sleeps is woken, one that is awake is not") {
  Single single;
  float x = 1.0f;
  std::uint64_t rung = 0;
  // Left alone for long enough it sleeps, however loaded the machine is.
  for (auto pause = 1ms; rung == 0 && pause < 1s; pause *= 2) {
    std::this_thread::sleep_for(pause);
    gw_work* work = post(single.group, &x);
    REQUIRE(gw_wait(work, kLong) == GW_OK);
    gw_work_free(work);
    rung = counters_of(single.client).doorbells;
  }
  CHECK(rung > 0);
  CHECK(soon([&] { return single.fixture.daemon().doorbells == rung; }));
}

TEST_CASE("calls that others follow wake the daemon once, by whatever comes after them") {
  Single single;
  std::vector<std::vector<float>> values(3, std::vector<float>(2, 1));
  enum After { kPost, kRefused, kUnread, kFlush, kTest, kWait, kAfters };
  for (int after = 0; after < kAfters; ++after) {
    INFO("after " << after);
    std::uint64_t rung = 0;
    // One that is awake needs no ring. Left alone for long enough it sleeps.
    for (auto pause = 1ms; rung == 0 && pause < 1s; pause *= 2) {
      std::this_thread::sleep_for(pause);
      const std::uint64_t before = counters_of(single.client).doorbells;
      std::array<gw_work*, 3> works{};
      const auto call = [&](std::size_t i) {
        gw_call made{};
        made.struct_bytes = sizeof made;
        made.collective = GW_ALL_REDUCE;
        made.input = made.output = values[i].data();
        made.count = values[i].size();
        made.datatype = GW_FLOAT32;
        return made;
      };
      for (std::size_t i = 0; i < 2; ++i) {
        const gw_call first = call(i);
        REQUIRE(gw_post_more(single.group, &first, &works[i]) == GW_OK);
      }
      REQUIRE(counters_of(single.client).doorbells == before);
      gw_call last = call(2);
      int done = 0;
      if (after == kPost) REQUIRE(gw_post(single.group, &last, &works[2]) == GW_OK);
      if (after == kRefused) last.datatype = static_cast<gw_datatype>(99);
      if (after == kUnread) last.reserved_sizes = 1;
      if (after == kRefused || after == kUnread) {
        gw_work* none = nullptr;
        REQUIRE(gw_post_more(single.group, &last, &none) == GW_INVALID_ARGUMENT);
        REQUIRE(counters_of(single.client).doorbells == before);
        REQUIRE(gw_post(single.group, &last, &none) == GW_INVALID_ARGUMENT);
      }
      if (after == kFlush) REQUIRE(gw_flush(single.client) == GW_OK);
      if (after == kTest) (void)gw_test(works[0], &done);
      if (after == kWait) REQUIRE(gw_wait(works[0], kLong) == GW_OK);
      rung = counters_of(single.client).doorbells - before;
      REQUIRE(rung <= 1);
      for (gw_work* work : works) {
        if (work == nullptr) continue;
        REQUIRE(gw_wait(work, kLong) == GW_OK);
        gw_work_free(work);
      }
    }
    REQUIRE(rung == 1);
  }
  CHECK(gw_flush(nullptr) == GW_INVALID_ARGUMENT);
}
