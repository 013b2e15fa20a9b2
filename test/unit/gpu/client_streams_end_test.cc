// SPDX-License-Identifier: BSD-3-Clause
// How ops on CUDA streams end without their streams: groups, clients and daemons that go away, and
// what nobody waits for.
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "gpu_clients.h"

namespace {

using namespace gradwire;
using namespace gradwire::test;
using Catch::Matchers::Contains;

TEST_CASE("memory is not given to another op while a stream may still write it") {
  Two two;
  OnGpu first(100);
  const FakeStream late;
  late.hold(true);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, late.get()));
  SECTION("the group is aborted") {
    REQUIRE(gw_group_abort(two.groups[1], "loss is NaN") == GW_OK);
    ends(a, GW_ABORTED);
    CHECK_THAT(gw_last_error(), Contains("loss is NaN"));
  }
  SECTION("the group is left") {
    gw_group_free(two.groups[0]);
    two.groups.erase(two.groups.begin());
    ends(a, GW_ABORTED);
    CHECK_THAT(gw_last_error(), Contains("was left before"));
  }
  gw_work_free(a);
  // Every other piece of the slab may be taken, but not this one.
  const std::vector<gw_group*> others = join_all({two.clients[0]}, 1, 99);
  std::vector<std::vector<float>> inputs(20, std::vector<float>(1000, 3));
  std::vector<gw_work*> works;
  for (auto& input : inputs) {
    gw_work* work = nullptr;
    REQUIRE(gw_all_reduce(others[0], input.data(), input.data(), 1000, GW_FLOAT32, GW_SUM, 0,
                          &work) == GW_OK);
    works.push_back(work);
  }
  late.hold(false);
  for (gw_work* work : works) ends_and_free(work);
  for (const auto& input : inputs) CHECK(input[99] == 3);
  gw_group_free(others[0]);
}

TEST_CASE("giving everything up waits for no stream, and the memory stays until its copy is over") {
  OnGpu first(100);
  OnGpu seen(100, 1000);
  const FakeStream late;
  late.hold(true);
  const int before = fake_cuda_held_here().registrations;
  {
    Two two;
    gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, late.get()));
    copy_on(late, seen, first, 100);
    SECTION("the op is freed") { gw_work_free(a); }
    SECTION("its group was left") {
      gw_group_free(two.groups[0]);
      two.groups.erase(two.groups.begin());
      ends(a, GW_ABORTED);
      gw_work_free(a);
    }
    SECTION("its client was closed") {
      gw_close(two.clients[0]);
      two.clients.erase(two.clients.begin());
      ends(a, GW_UNAVAILABLE);
      gw_work_free(a);
    }
  }
  CHECK(seen.get()[99] == 1099);
  CHECK(fake_cuda_held_here().registrations == before + 1);
  late.hold(false);
  CHECK(seen.get()[99] == 99);
  // The next client looks after it.
  const Two next;
  CHECK(fake_cuda_held_here().registrations == before);
}

TEST_CASE("an op waits for staging memory that CUDA still copies from, of one that is over") {
  constexpr std::size_t kCount = 1'000'000;
  Two two;
  two.fixture.daemon().memory_limit = 4u << 20;
  OnGpu first(kCount);
  std::vector<float> other(kCount, 1);
  const gw_call call = on_stream(GW_ALL_REDUCE, first.get(), first.get(), kCount, nullptr);
  gw_work* a = two.post(0, call);
  ends_and_free(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), kCount)));
  const FakeStream user;
  hold_fake_streams(true);
  REQUIRE(gw_wait_on_stream(a, kLong, user.get()) == GW_OK);
  gw_work_free(a);
  std::atomic<int> posted = -1;
  std::string why;
  std::thread posts([&] {
    posted = two.try_post(0, call, &a);
    why = gw_last_error();
  });
  // It asks twice for memory, in vain.
  CHECK(soon([&] { return two.fixture.daemon().refusals >= 2 || posted != -1; }));
  CHECK(posted == -1);
  hold_fake_streams(false);
  posts.join();
  INFO(why);
  REQUIRE(posted == GW_OK);
  ends_and_free(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), kCount)));
  ends_and_free(a);
}

TEST_CASE("an op whose group ended while it was posted is not held for ever") {
  Two two;
  OnGpu first(100);
  const FakeStream late;
  late.hold(true);
  CopyGate gate;
  gw_work* a = nullptr;
  std::atomic<int> posted = -1;
  std::string why;
  std::thread posts([&] {
    posted =
        two.try_post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, late.get()), &a);
    why = gw_last_error();
  });
  REQUIRE(soon([&] { return gate.waiting() == 1; }));
  SECTION("it was aborted") {
    REQUIRE(gw_group_abort(two.groups[1], "loss is NaN") == GW_OK);
    REQUIRE(soon([&] { return gw_group_error(two.groups[0]) == GW_ABORTED; }));
  }
  SECTION("it was left") { REQUIRE(gw_group_leave(two.groups[0]) == GW_OK); }
  gate.open();
  posts.join();
  CHECK(posted == (why == "the group has been left" ? GW_INVALID_ARGUMENT : GW_ABORTED));
  gw_work_free(a);
}

TEST_CASE("a daemon that goes away ends what waits for a stream") {
  Two two;
  OnGpu first(100);
  const FakeStream late;
  late.hold(true);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, late.get()));
  two.fixture.kill_daemon();
  ends(a, GW_UNAVAILABLE);
  gw_work_free(a);
}

TEST_CASE("nobody waits for an op on a late stream: it goes on all the same") {
  Two two;
  OnGpu first(100);
  std::vector<float> other(100, 1);
  const FakeStream late;
  late.hold(true);
  gw_work_free(two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, late.get())));
  gw_work* b = two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100));
  late.hold(false);
  // The next call of that client moves it on.
  CHECK(gw_group_error(two.groups[0]) == GW_OK);
  gw_work* c = two.post(0, on_cpu(GW_BARRIER, nullptr, nullptr, 0));
  gw_work* d = two.post(1, on_cpu(GW_BARRIER, nullptr, nullptr, 0));
  for (gw_work* work : {b, c, d}) ends_and_free(work);
  CHECK(other[99] == 100);
}

}  // namespace
