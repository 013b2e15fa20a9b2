// SPDX-License-Identifier: BSD-3-Clause
// Ops on CUDA streams where gradient memory is the host's: late streams, failing ones, and streams
// in another order than their ops. The fake CUDA's memory can be looked at from here.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gpu_clients.h"

namespace {

using namespace gradwire;
using namespace gradwire::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("an op of GPU memory follows its stream through pinned memory of the host") {
  const std::size_t count = GENERATE(2u, 1000u, 1'000'000u);
  Two two;
  OnGpu first(count);
  OnGpu second(count);
  const FakeStream late;
  late.hold(true);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), count, late.get()));
  gw_work* b = two.post(1, on_stream(GW_ALL_REDUCE, second.get(), second.get(), count, nullptr));
  CHECK(gw_wait(a, 20) == GW_TIMED_OUT);
  CHECK_THAT(gw_last_error(), Contains("CUDA stream") && Contains("has not come to it"));
  CHECK(gw_wait(b, 20) == GW_TIMED_OUT);
  first.get()[1] = 100;  // what the stream was still to write
  late.hold(false);
  ends_and_free(a);
  ends_and_free(b);
  CHECK(first.get()[1] == 101);
  first.get()[1] = second.get()[1] = 2;
  CHECK(first.has_times(2));
  CHECK(second.has_times(2));
  CHECK(counters_of(two.clients[0]).copies == 2);
  CHECK(fake_cuda_held_here().registrations == 2);
  two.close();
  CHECK(fake_cuda_held_here().registrations == 0);
  CHECK(fake_cuda_held_here().events == 0);
  CHECK(fake_cuda_held_here().streams == 1);
}

TEST_CASE("ops keep their order behind one whose stream is late, whatever they are of") {
  Two two;
  OnGpu first(100);
  OnGpu second(100);
  std::vector<float> third(100, 1);
  const FakeStream late;
  const FakeStream quick;
  late.hold(true);
  std::vector<gw_work*> works{
      two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, late.get())),
      two.post(0, on_stream(GW_ALL_REDUCE, second.get(), second.get(), 60, quick.get())),
      two.post(0, on_cpu(GW_ALL_REDUCE, third.data(), third.data(), 40))};
  std::vector<std::vector<float>> others{std::vector<float>(100, 1), std::vector<float>(60, 2),
                                         std::vector<float>(40, 3)};
  for (auto& other : others) {
    works.push_back(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), other.size())));
  }
  for (gw_work* work : works) CHECK(gw_wait(work, 5) == GW_TIMED_OUT);
  late.hold(false);
  for (gw_work* work : works) ends_and_free(work);
  CHECK(first.get()[99] == 100);
  CHECK(second.get()[59] == 61);
  CHECK(second.get()[60] == 60);
  CHECK(third[39] == 4);
}

TEST_CASE("a call that waits for its stream wakes the daemon for those before it") {
  Two two;
  const OnGpu tensor(50);
  const FakeStream late;
  std::uint64_t rung = 0;
  // One that is awake needs no ring. Left alone for long enough it sleeps.
  for (auto pause = 1ms; rung == 0 && pause < 1s; pause *= 2) {
    std::this_thread::sleep_for(pause);
    late.hold(true);
    std::vector<float> values(4, 1);
    gw_call call = on_cpu(GW_ALL_REDUCE, values.data(), values.data(), 2);
    call.struct_bytes = sizeof call;
    std::vector<gw_work*> works(1);
    const std::uint64_t before = counters_of(two.clients[0]).doorbells;
    REQUIRE(gw_post_more(two.groups[0], &call, &works[0]) == GW_OK);
    works.push_back(
        two.post(0, on_stream(GW_ALL_REDUCE, tensor.get(), tensor.get(), 50, late.get())));
    rung = counters_of(two.clients[0]).doorbells - before;
    late.hold(false);
    std::vector<float> other(50, 1);
    works.push_back(two.post(1, on_cpu(GW_ALL_REDUCE, values.data() + 2, values.data() + 2, 2)));
    works.push_back(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 50)));
    for (gw_work* work : works) ends_and_free(work);
  }
  CHECK(rung == 1);
}

TEST_CASE("another group is not held back") {
  Two two;
  const std::vector<gw_group*> others = join_all(two.clients, 1, 8);
  OnGpu first(100);
  std::vector<float> second(100, 1);
  const FakeStream late;
  late.hold(true);
  std::vector<gw_work*> held;
  for (std::size_t who = 0; who < 2; ++who) {
    held.push_back(two.post(who, on_stream(GW_ALL_REDUCE, first.get() + 50 * who,
                                           first.get() + 50 * who, 50, late.get())));
  }
  std::vector<std::vector<float>> sums(2, second);
  run_everywhere(2, [&](std::uint32_t who, gw_work** work) {
    return gw_all_reduce(others[who], sums[who].data(), sums[who].data(), 100, GW_FLOAT32, GW_SUM,
                         0, work);
  });
  CHECK(sums[0][99] == 2);
  late.hold(false);
  all_end(held);
  for (gw_group* group : others) gw_group_free(group);
}

TEST_CASE("a result waits for its own stream, which may still read the output") {
  Two two;
  OnGpu there(100);
  std::vector<float> from(100, 7);
  const FakeStream late;
  late.hold(true);
  // A broadcast's receiver has no input, so nothing holds its command.
  gw_call call = on_stream(GW_BROADCAST, nullptr, there.get(), 100, late.get());
  call.root = 0;
  gw_work* sent = two.post(0, on_cpu(GW_BROADCAST, from.data(), from.data(), 100));
  gw_work* got = two.post(1, call);
  ends_and_free(sent);
  CHECK(gw_wait(got, 50) == GW_TIMED_OUT);
  CHECK(there.get()[99] == 99);
  late.hold(false);
  ends_and_free(got);
  CHECK(there.get()[99] == 7);
}

TEST_CASE("a wait on a stream orders it behind the result's copy, and does not wait for that") {
  Two two;
  OnGpu first(100);
  std::vector<float> other(100, 1);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, nullptr));
  gw_work* b = two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100));
  ends_and_free(b);
  const FakeStream user;
  const char* const what = GENERATE("ordered", "waited for later", "refused");
  if (what == std::string("ordered")) {
    hold_fake_streams(true);  // so the copy of the result does not run
    CHECK(gw_wait(a, 30) == GW_TIMED_OUT);
    CHECK_THAT(gw_last_error(), Contains("still being copied to the GPU"));
    int done = 1;
    CHECK(gw_test(a, &done) == GW_OK);
    CHECK(done == 0);
    REQUIRE(gw_wait_on_stream(a, kLong, user.get()) == GW_OK);
    CHECK(first.get()[99] == 99);
    // What the stream is given next sees the result.
    OnGpu after(100);
    copy_on(user, after, first, 100);
    fake_cuda_function<int(void*)>("cuStreamSynchronize")(user.get());
    CHECK(after.get()[99] == 100);
    // A second stream is ordered as well.
    CHECK(gw_wait_on_stream(a, kLong, user.get()) == GW_OK);
  } else if (what == std::string("waited for later")) {
    hold_fake_streams(true);
    REQUIRE(gw_wait_on_stream(a, kLong, user.get()) == GW_OK);
    // Who waits without a stream has the result itself when that returns.
    CHECK(gw_wait(a, 30) == GW_TIMED_OUT);
    CHECK_THAT(gw_last_error(), Contains("still being copied to the GPU"));
    fail_next(fake_cuda::kStreamWait);
    CHECK(gw_wait_on_stream(a, 30, user.get()) == GW_TIMED_OUT);
    CHECK(first.get()[99] == 99);
    hold_fake_streams(false);
    REQUIRE(gw_wait(a, kLong) == GW_OK);
    CHECK(first.get()[99] == 100);
  } else {
    hold_fake_streams(true);
    CHECK(gw_wait(a, 30) == GW_TIMED_OUT);
    fail_next(fake_cuda::kStreamWait);
    // It waits itself.
    CHECK(gw_wait_on_stream(a, 30, user.get()) == GW_TIMED_OUT);
    hold_fake_streams(false);
    CHECK(gw_wait_on_stream(a, kLong, user.get()) == GW_OK);
  }
  gw_work_free(a);
  hold_fake_streams(false);
  CHECK(first.get()[99] == 100);
}

TEST_CASE("a late send holds back later sends, and neither a receive nor a collective") {
  Two two;
  OnGpu sent(100);
  OnGpu got(100);
  std::vector<float> more(100, 5);
  std::vector<float> at_peer(100);
  std::vector<float> at_peer_later(100);
  const FakeStream late;
  late.hold(true);
  gw_call send = on_stream(GW_SEND, sent.get(), nullptr, 100, late.get());
  send.root = 1;
  gw_call send_later = on_cpu(GW_SEND, more.data(), nullptr, 100);
  send_later.root = 1;
  gw_call recv = on_stream(GW_RECV, nullptr, got.get(), 100, nullptr);
  recv.root = 1;
  gw_work* first = two.post(0, send);
  gw_work* second = two.post(0, send_later);
  gw_work* third = two.post(0, recv);
  gw_call answer = on_cpu(GW_SEND, more.data(), nullptr, 100);
  gw_call take = on_cpu(GW_RECV, nullptr, at_peer.data(), 100);
  gw_call take_later = on_cpu(GW_RECV, nullptr, at_peer_later.data(), 100);
  gw_work* fourth = two.post(1, take);
  gw_work* fifth = two.post(1, take_later);
  gw_work* sixth = two.post(1, answer);
  OnGpu reduced(100);
  gw_work* seventh =
      two.post(0, on_stream(GW_ALL_REDUCE, reduced.get(), reduced.get(), 100, nullptr));
  std::vector<float> other(100, 1);
  gw_work* eighth = two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100));
  for (gw_work* work : {third, sixth, seventh, eighth}) ends_and_free(work);
  CHECK(reduced.get()[99] == 100);
  CHECK(got.get()[99] == 5);
  CHECK(gw_wait(fourth, 10) == GW_TIMED_OUT);
  late.hold(false);
  for (gw_work* work : {first, second, fourth, fifth}) ends_and_free(work);
  CHECK(at_peer[99] == 99);
  CHECK(at_peer_later[99] == 5);
}

TEST_CASE("a stream that fails ends the op by name, and the group everywhere") {
  Two two;
  OnGpu first(100);
  OnGpu second(100);
  std::vector<float> other(100, 1);
  const FakeStream late;
  late.hold(true);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, late.get()));
  gw_work* b = two.post(0, on_stream(GW_ALL_REDUCE, second.get(), second.get(), 100, nullptr));
  gw_work* c = two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100));
  fail_next(fake_cuda::kCopyFails);
  late.hold(false);
  ends(a, GW_SYSTEM);
  CHECK_THAT(gw_last_error(), Contains("the input of all-reduce 1 of rank 0") &&
                                  Contains("cuEventQuery") && Contains("CUDA_ERROR"));
  CHECK(gw_wait(b, kLong) == GW_SYSTEM);
  ends(c, GW_ABORTED);
  CHECK_THAT(gw_last_error(), Contains("the input of all-reduce 1 of rank 0"));
  CHECK(gw_group_error(two.groups[0]) == GW_ABORTED);
  for (gw_work* work : {a, b, c}) gw_work_free(work);
}

TEST_CASE("a result that cannot be copied back ends its op by name") {
  Two two;
  OnGpu first(100);
  std::vector<float> other(100, 1);
  const bool at_once = GENERATE(true, false);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, nullptr));
  gw_work* b = two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100));
  ends_and_free(b);
  fail_next(at_once ? fake_cuda::kCopyRefused : fake_cuda::kCopyFails);
  ends(a, GW_SYSTEM);
  CHECK_THAT(gw_last_error(),
             Contains("the result of all-reduce 1 of rank 0") && Contains("CUDA_ERROR"));
  gw_work_free(a);
}

TEST_CASE("what CUDA refuses when an op is posted is an error, and the op is not posted") {
  Two two;
  OnGpu first(100);
  gw_work* work = nullptr;
  std::vector<float> nowhere(100);
  const auto refused = [&](const gw_call& call, gw_status status, const std::string& says) {
    CHECK(two.try_post(0, call, &work) == status);
    CHECK_THAT(gw_last_error(), Contains(says));
  };
  refused(on_stream(GW_ALL_REDUCE, nowhere.data(), nowhere.data(), 100, nullptr),
          GW_INVALID_ARGUMENT, "CUDA does not know the memory");
  refused(on_stream(GW_ALL_REDUCE, first.get(), nowhere.data(), 100, nullptr), GW_INVALID_ARGUMENT,
          "CUDA does not know the memory");
  gw_memory* memory = nullptr;
  REQUIRE(gw_memory_alloc(two.clients[0], 400, &memory) == GW_OK);
  auto* const ours = static_cast<float*>(gw_memory_address(memory));
  refused(on_stream(GW_ALL_REDUCE, ours, ours, 100, nullptr), GW_INVALID_ARGUMENT,
          "CUDA does not know the memory");
  REQUIRE(gw_memory_free(memory) == GW_OK);
  int no_stream = 0;
  refused(on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, &no_stream), GW_SYSTEM,
          "cuStreamIsCapturing");
  fail_next(fake_cuda::kHostRegister);
  refused(on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, nullptr), GW_SYSTEM,
          "cannot be pinned");
  fail_next(fake_cuda::kCopyRefused);
  refused(on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, nullptr), GW_SYSTEM,
          "cuMemcpyAsync");
  // And the next one is the first that the other has to match.
  std::vector<float> other(100, 1);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, nullptr));
  gw_work* b = two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100));
  ends_and_free(a);
  ends_and_free(b);
  CHECK(first.get()[99] == 100);
}

TEST_CASE("a thread that sleeps hears that another has begun to bring a result back") {
  Two two;
  OnGpu first(100);
  std::vector<float> other(100, 1);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, nullptr));
  ends_and_free(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100)));
  CopyGate gate;
  int done = 1;
  std::atomic<int> asked = -1;
  std::thread asks([&] { asked = gw_test(a, &done); });
  REQUIRE(soon([&] { return gate.waiting() == 1; }));
  std::atomic<int> waited = -1;
  // Ten times as long as it may take, because a lost wake-up is one that comes with the timeout.
  std::thread waits([&] { waited = gw_wait(a, 10 * kLong); });
  REQUIRE(soon([&] { return counters_of(two.clients[0]).sleeps == 1; }));
  hold_fake_streams(true);
  gate.open();
  asks.join();
  CHECK(asked == GW_OK);
  CHECK(done == 0);
  hold_fake_streams(false);
  CHECK(soon([&] { return waited == GW_OK; }));
  waits.join();
  gw_work_free(a);
}

}  // namespace
