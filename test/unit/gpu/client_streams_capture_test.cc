// SPDX-License-Identifier: BSD-3-Clause
// Streams that are captured into a CUDA graph. An op cannot be part of one: it is refused by name,
// and whatever a client does meanwhile for other ops spoils no capture.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "gpu_clients.h"

namespace {

using namespace gradwire;
using namespace gradwire::test;
using Catch::Matchers::Contains;

TEST_CASE("an op on a stream that is captured is refused by name, and the capture goes on") {
  Two two;
  OnGpu first(100);
  const FakeStream graph;
  graph.begin_capture();
  gw_work* work = nullptr;
  CHECK(two.try_post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, graph.get()),
                     &work) == GW_UNSUPPORTED);
  CHECK_THAT(gw_last_error(),
             Contains("captured into a CUDA graph") && Contains("before or after the capture"));
  // A receiver's has no input to copy.
  gw_call take = on_stream(GW_BROADCAST, nullptr, first.get(), 100, graph.get());
  take.root = 1;
  CHECK(two.try_post(0, take, &work) == GW_UNSUPPORTED);
  // Nothing may be done on the default stream either.
  CHECK(two.try_post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, nullptr), &work) ==
        GW_UNSUPPORTED);
  CHECK_THAT(gw_last_error(), Contains("on the default stream"));
  CHECK(graph.end_capture());
  // And the next one is the first that the other has to match.
  std::vector<float> other(100, 1);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, graph.get()));
  ends_and_free(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100)));
  ends_and_free(a);
  CHECK(first.get()[99] == 100);
}

TEST_CASE("a wait on a stream that is captured is refused by name, and the op goes on") {
  Two two;
  OnGpu first(100);
  std::vector<float> other(100, 1);
  gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 100, nullptr));
  const FakeStream graph;
  graph.begin_capture();
  CHECK(gw_wait_on_stream(a, kLong, graph.get()) == GW_UNSUPPORTED);
  CHECK_THAT(gw_last_error(),
             Contains("captured into a CUDA graph") && Contains("wait for the op before or after"));
  CHECK(gw_work_is_done(a) == 0);
  CHECK(graph.end_capture());
  ends_and_free(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100)));
  CHECK(gw_wait_on_stream(a, kLong, graph.get()) == GW_OK);
  gw_work_free(a);
  CHECK(first.get()[99] == 100);
}

TEST_CASE("ops on other streams go on while a stream is captured, and do not spoil the capture") {
  OnGpu first(1'000'000);
  OnGpu second(100);
  const FakeStream graph;
  const FakeStream late;
  std::vector<float> other(1'000'000, 1);
  {
    Two two;
    late.hold(true);
    gw_work* a = two.post(0, on_stream(GW_ALL_REDUCE, second.get(), second.get(), 100, late.get()));
    graph.begin_capture();
    CHECK(gw_wait(a, 5) == GW_TIMED_OUT);
    late.hold(false);
    int done = 0;
    CHECK(gw_test(a, &done) == GW_OK);  // which hands it to the daemon
    ends_and_free(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100)));
    ends_and_free(a);
    // This one pins memory.
    a = two.post(0, on_stream(GW_ALL_REDUCE, first.get(), first.get(), 1'000'000, late.get()));
    CHECK(gw_test(a, &done) == GW_OK);
    ends_and_free(two.post(1, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 1'000'000)));
    REQUIRE(gw_wait_on_stream(a, kLong, late.get()) == GW_OK);
    gw_work_free(a);
  }
  CHECK(fake_cuda_held_here().registrations == 0);
  CHECK(graph.end_capture());
  CHECK(first.get()[99] == 199);
  CHECK(second.get()[99] == 100);
}

}  // namespace
