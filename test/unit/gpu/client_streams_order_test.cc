// SPDX-License-Identifier: BSD-3-Clause
// The order between ops on CUDA streams that use the same memory. A result's copy to the GPU may be
// still to come when its op is over for who waited on a stream, or gave it up: then an op on
// another stream comes after it all the same.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "gpu_clients.h"

namespace {

using namespace gradwire;
using namespace gradwire::test;
using Catch::Matchers::Contains;

/// A result for client 1 of `two`, of which the op is over, and that is written to `to` when
/// release() lets its stream go.
class LateResult {
 public:
  enum class Over { kWaitedForOnStream, kFreed };

  LateResult(const Two& two, const OnGpu& to, std::size_t count, float value,
             Over over = Over::kWaitedForOnStream) {
    const std::vector<float> from(count, value);
    late_.hold(true);
    gw_call send = on_cpu(GW_SEND, from.data(), nullptr, count);
    send.root = 1;
    // It has no input, so the daemon gets its command at once.
    gw_call recv = on_stream(GW_RECV, nullptr, to.get(), count, late_.get());
    recv.root = 0;
    gw_work* sent = two.post(0, send);
    gw_work* got = two.post(1, recv);
    ends_and_free(sent);
    if (over == Over::kWaitedForOnStream) {
      REQUIRE(gw_wait_on_stream(got, kLong, user_.get()) == GW_OK);
    } else {
      // The copy has been begun.
      CHECK(gw_wait(got, 20) == GW_TIMED_OUT);
      CHECK_THAT(gw_last_error(), Contains("still being copied to the GPU"));
    }
    gw_work_free(got);
  }
  void release() const { late_.hold(false); }

 private:
  FakeStream late_;
  FakeStream user_;
};

TEST_CASE("an op reads an earlier op's result, although its own stream is not behind that") {
  const auto over = GENERATE(LateResult::Over::kWaitedForOnStream, LateResult::Over::kFreed);
  Two two;
  OnGpu shared(100);
  OnGpu sum(100);
  const LateResult result(two, shared, 100, 7, over);
  const FakeStream another;
  std::vector<float> other(60, 1);
  // Transfers have streams of their own, and so the result's was another than a collective's.
  const bool is_sent = GENERATE(false, true);
  float* const part = shared.get() + 40;
  gw_call ours = on_stream(GW_ALL_REDUCE, part, sum.get(), 60, another.get());
  gw_call theirs = on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 60);
  if (is_sent) {
    ours = on_stream(GW_SEND, part, nullptr, 60, another.get());
    theirs = on_cpu(GW_RECV, nullptr, other.data(), 60);
    theirs.root = 1;
  }
  gw_work* a = two.post(1, ours);
  gw_work* b = two.post(0, theirs);
  CHECK(gw_wait(a, 20) == GW_TIMED_OUT);
  CHECK_THAT(gw_last_error(), Contains("has not come to it"));
  CHECK(gw_wait(b, 5) == GW_TIMED_OUT);
  result.release();
  ends_and_free(a);
  ends_and_free(b);
  CHECK(shared.get()[99] == 7);
  CHECK(other[59] == (is_sent ? 7 : 8));
  CHECK((is_sent || sum.get()[59] == 8));
}

TEST_CASE("a result is written after an earlier op's, of whichever group both are") {
  Two two;
  const std::vector<gw_group*> others = join_all(two.clients, 1, 8);
  const bool same_group = GENERATE(true, false);
  OnGpu shared(100);
  const LateResult result(two, shared, 100, 7);
  const FakeStream another;
  std::vector<float> from(100, 9);
  gw_call send = on_cpu(GW_BROADCAST, from.data(), from.data(), 100);
  gw_call take = on_stream(GW_BROADCAST, nullptr, shared.get(), 100, another.get());
  send.struct_bytes = take.struct_bytes = sizeof send;
  gw_work* a = nullptr;
  gw_work* b = nullptr;
  REQUIRE(gw_post((same_group ? two.groups : others)[0], &send, &a) == GW_OK);
  REQUIRE(gw_post((same_group ? two.groups : others)[1], &take, &b) == GW_OK);
  ends_and_free(a);
  CHECK(gw_wait(b, 20) == GW_TIMED_OUT);
  CHECK_THAT(gw_last_error(), Contains("still being copied to the GPU"));
  CHECK(shared.get()[99] == 99);
  result.release();
  ends_and_free(b);
  CHECK(shared.get()[99] == 9);
  for (gw_group* group : others) gw_group_free(group);
}

TEST_CASE("ops of other memory do not wait for a result that is still to be copied") {
  Two two;
  OnGpu shared(200);
  const LateResult result(two, shared, 100, 7);
  const FakeStream another;
  std::vector<float> other(100, 1);
  float* const behind = shared.get() + 100;
  gw_work* a = two.post(1, on_stream(GW_ALL_REDUCE, behind, behind, 100, another.get()));
  gw_work* b = two.post(0, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100));
  ends_and_free(a);
  ends_and_free(b);
  CHECK(shared.get()[199] == 200);
  CHECK(shared.get()[99] == 99);
  result.release();
}

TEST_CASE("an op without a stream is refused memory that a result is still copied to") {
  Two two;
  OnGpu shared(100);
  const LateResult result(two, shared, 100, 7);
  std::vector<float> sums(100, 1);
  gw_work* work = nullptr;
  CHECK(two.try_post(1, on_cpu(GW_ALL_REDUCE, shared.get(), sums.data(), 100), &work) == GW_BUSY);
  CHECK_THAT(gw_last_error(), Contains("still being copied to the GPU"));
  result.release();
  work = two.post(1, on_cpu(GW_ALL_REDUCE, shared.get(), sums.data(), 100));
  std::vector<float> other(100, 1);
  ends_and_free(two.post(0, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100)));
  ends_and_free(work);
  CHECK(sums[99] == 8);
}

TEST_CASE("what a CUDA that orders nothing says is the op's error, and it is not posted") {
  Two two;
  OnGpu shared(100);
  const LateResult result(two, shared, 100, 7);
  gw_work* work = nullptr;
  fail_next(fake_cuda::kStreamWait);
  CHECK(two.try_post(1, on_stream(GW_ALL_REDUCE, shared.get(), shared.get(), 100, nullptr),
                     &work) == GW_SYSTEM);
  CHECK_THAT(gw_last_error(), Contains("cuStreamWaitEvent"));
  result.release();
}

TEST_CASE("memory of an op on a stream is its own until it is reported, to read and to write") {
  Two two;
  OnGpu in(100);
  OnGpu out(100);
  OnGpu apart(100);
  const FakeStream late;
  late.hold(true);
  gw_work* a = two.post(1, on_stream(GW_ALL_REDUCE, in.get(), out.get(), 100, late.get()));
  gw_work* work = nullptr;
  const auto refused = [&](const float* from, float* to) {
    CHECK(two.try_post(1, on_stream(GW_ALL_REDUCE, from, to, 10, nullptr), &work) == GW_BUSY);
    CHECK_THAT(gw_last_error(), Contains("overlaps that of all-reduce 1 of rank 1"));
  };
  const auto all = [&] {
    refused(out.get() + 90, apart.get());  // to read what is to be written
    refused(apart.get(), out.get() + 90);  // to write it
    refused(apart.get(), in.get() + 90);   // to write what is read
  };
  all();
  late.hold(false);
  int done = 0;
  CHECK(gw_test(a, &done) == GW_OK);  // which hands it to the daemon
  std::vector<float> other(100, 1);
  gw_work* b = two.post(0, on_cpu(GW_ALL_REDUCE, other.data(), other.data(), 100));
  ends_and_free(b);
  // The daemon is done with it, and the result is not in its place.
  refused(out.get() + 90, apart.get());
  refused(apart.get(), out.get() + 90);
  ends_and_free(a);
  CHECK(out.get()[99] == 100);
}

}  // namespace
