// SPDX-License-Identifier: BSD-3-Clause
// What gw_post() takes and refuses of a gw_call's fields, before anything is posted.
#include <fmt/format.h>

#include <array>
#include <limits>

#include "base/collective_call.h"
#include "call_pair.h"

using namespace gradwire;
using namespace gradwire::test;

TEST_CASE("a call that needs more memory than there is, by its sizes, is refused") {
  CallPair pair;
  std::uint64_t refusals = 0;
  for (const Collective collective : kCollectives) {
    for (std::uint32_t p = 0; p < kPairSize; ++p) {
      const CollectiveExtent needs = CallPair::extent(collective, p);
      gw_call call = pair.call(collective, p);
      call.has_sizes = 1;
      call.input_bytes = needs.input;
      call.output_bytes = needs.output;
      const auto too_small = [&](const char* side, std::uint64_t gw_call::*bytes) {
        if (call.*bytes == 0) return;
        gw_call smaller = call;
        smaller.*bytes -= 1;
        pair.refused(p, smaller,
                     fmt::format("the {0} of {1} has {2} bytes ({0}_bytes) and needs {3}, 5 int32",
                                 side, name_of(collective), smaller.*bytes, call.*bytes));
        smaller.*bytes = 0;
        pair.refused(p, smaller,
                     fmt::format("the {} of {} has 0 bytes", side, name_of(collective)));
        ++refusals;
      };
      too_small("input", &gw_call::input_bytes);
      too_small("output", &gw_call::output_bytes);
    }
  }
  // Two processes have both sides of four collectives, three sides of those with a root, and one
  // each of sends and recvs.
  CHECK(refusals == 4 * 4 + 4 * 3 + 2 * 2);
}

TEST_CASE("a call whose memory has just what it needs, or more, is posted") {
  for (const Collective collective : kCollectives) {
    for (const std::uint64_t more : {0, 7}) {
      INFO(name_of(collective) << " with " << more << " bytes more than needed");
      CallPair pair;
      pair.fixture.daemon().hold_ops = true;
      for (std::uint32_t p = 0; p < kPairSize; ++p) {
        const CollectiveExtent needs = CallPair::extent(collective, p);
        gw_call call = pair.call(collective, p);
        call.has_sizes = 1;
        call.input_bytes = needs.input + more;
        call.output_bytes = needs.output + more;
        gw_work* work = nullptr;
        const gw_status posted = gw_post(pair.groups[p], &call, &work);
        INFO(gw_last_error());
        CHECK(posted == GW_OK);
        gw_work_free(work);
      }
    }
  }
}

TEST_CASE("sizes of a call by splits are compared with the sums of its counts") {
  CallPair pair;
  const std::uint64_t sent[kPairSize] = {3, 4};
  const std::uint64_t received[kPairSize] = {3, 2};
  gw_call call = pair.call(Collective::kAllToAll, 0);
  call.count = 0;
  call.input_counts = sent;
  call.output_counts = received;
  call.has_sizes = 1;
  call.input_bytes = 7 * sizeof(std::int32_t);
  call.output_bytes = 5 * sizeof(std::int32_t) - 1;
  pair.refused(
      0, call,
      "the output of all-to-all has 19 bytes (output_bytes) and needs 20, 5 int32, the sum "
      "of its output_counts");
  call.output_bytes = 20;
  call.input_bytes = 27;
  pair.refused(0, call, "the input of all-to-all has 27 bytes (input_bytes) and needs 28, 7 int32");
  // One side by counts, the other in equal blocks.
  call.input_bytes = 28;
  call.output_counts = nullptr;
  call.count = 3;
  pair.refused(0, call,
               "has 20 bytes (output_bytes) and needs 24, 3 int32 for each of 2 processes");

  gw_call gather = pair.call(Collective::kGather, 1);
  gather.count = received[1];
  gather.output_counts = received;
  gather.has_sizes = 1;
  gather.input_bytes = 8;
  gather.output_bytes = 16;
  pair.refused(1, gather, "the output of gather has 16 bytes (output_bytes) and needs 20, 5 int32");

  gw_call scatter = pair.call(Collective::kScatter, 1);
  scatter.count = sent[1];
  scatter.input_counts = sent;
  scatter.has_sizes = 1;
  scatter.input_bytes = 27;
  scatter.output_bytes = 16;
  pair.refused(1, scatter, "the input of scatter has 27 bytes (input_bytes) and needs 28, 7 int32");
}

TEST_CASE("sizes are a part of a call only if it says so, and older callers have none") {
  CallPair pair;
  gw_call call = pair.call(Collective::kAllReduce, 0);
  call.output_bytes = 4;
  pair.refused(0, call, "input_bytes is 0 and output_bytes is 4, but has_sizes is 0");
  call.output_bytes = 0;
  call.has_sizes = 2;
  pair.refused(0, call, "has_sizes is 2");
  call.has_sizes = 0;
  call.reserved_sizes = 1;
  pair.refused(0, call, "reserved_sizes is 1");
  run_everywhere(kPairSize, [&](std::uint32_t p, gw_work** work) {
    gw_call old = pair.call(Collective::kAllReduce, p);
    // As compiled before these fields were there; what follows the struct is not its own.
    old.struct_bytes = offsetof(gw_call, input_bytes);
    old.input_bytes = 1;
    old.has_sizes = 1;
    return gw_post(pair.groups[p], &old, work);
  });
}

TEST_CASE("a field that a call does not take is refused by its name") {
  CallPair pair;
  const auto refused = [&](Collective collective, auto change, const std::string& text) {
    gw_call call = pair.call(collective, 0);
    change(call);
    pair.refused(0, call, text);
  };
  std::int32_t other = 0;
  for (const Collective collective : kCollectives) {
    const std::string name(name_of(collective));
    refused(
        collective, [](gw_call& c) { c.factor = 2; }, "factor of " + name + " is 2");
    refused(
        collective, [&](gw_call& c) { c.factor = std::numeric_limits<double>::quiet_NaN(); },
        "factor of " + name + " is nan");
    refused(
        collective, [&](gw_call& c) { c.stream = &other; }, "stream of " + name + " is 0x");
  }
  refused(
      Collective::kSend, [&](gw_call& c) { c.output = &other; }, "output of send is 0x");
  refused(
      Collective::kRecv, [&](gw_call& c) { c.input = &other; }, "input of recv is 0x");
  refused(
      Collective::kBarrier, [&](gw_call& c) { c.input = &other; }, "input of barrier is 0x");
  refused(
      Collective::kBarrier, [&](gw_call& c) { c.output = &other; }, "output of barrier is 0x");
  refused(
      Collective::kBarrier, [](gw_call& c) { c.on_stream = 1; }, "on_stream of barrier is 1");
  const std::uint64_t counts[kPairSize] = {1, 2};
  refused(
      Collective::kAllToAll,
      [&](gw_call& c) { c.count = 5, c.input_counts = c.output_counts = counts; },
      "count of all-to-all is 5");
}

TEST_CASE(
    "splits that cannot be are refused by what is wrong with them, before anything is posted") {
  CallPair pair;
  const std::uint64_t one[kPairSize] = {3, 4};
  const std::uint64_t other[kPairSize] = {2, 4};
  const std::uint64_t wraps[kPairSize] = {1, UINT64_MAX};
  const std::uint64_t many[kPairSize] = {1, std::uint64_t{1} << 46};
  gw_call call = pair.call(Collective::kAllToAll, 0);
  call.count = 0;
  call.input_counts = one;
  call.output_counts = other;
  pair.refused(0, call,
               "all-to-all sends 3 elements from process 0 to itself, and receives 2 there");
  call.output_counts = nullptr;
  call.count = 4;
  pair.refused(0, call,
               "all-to-all sends 3 elements from process 0 to itself, and receives 4 there");
  call.output_counts = wraps;
  call.count = 0;
  pair.refused(0, call,
               "the output_counts of all-to-all add up to more than an op can have, 2^47 bytes: "
               "process 1 has the largest, 18446744073709551615 int32");
  call.input_counts = many;
  pair.refused(0, call, "the input_counts of all-to-all add up to more");
  gw_call gather = pair.call(Collective::kGather, 1);
  gather.output_counts = wraps;
  pair.refused(1, gather, "the output_counts of gather add up to more");
  gather.output_counts = one;
  pair.refused(1, gather,
               "gather has count 5, but its counts give 4 to the root itself, process 1");
  gw_call scatter = pair.call(Collective::kScatter, 1);
  scatter.input_counts = many;
  pair.refused(1, scatter, "the input_counts of scatter add up to more");
}
