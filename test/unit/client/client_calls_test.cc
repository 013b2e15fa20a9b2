// SPDX-License-Identifier: BSD-3-Clause
// What gw_post() takes and refuses of a gw_call's fields, before anything is posted.
#include <fmt/format.h>

#include <array>
#include <limits>

#include "base/collective_call.h"
#include "fixture.h"

using namespace gradwire;
using namespace gradwire::test;

namespace {

constexpr std::uint32_t kPairSize = 2;
constexpr std::uint64_t kElements = 5;

/// Two processes, each with an input and an output that no call outgrows.
struct Pair {
  Fixture fixture{kPairSize};
  std::array<gw_client*, kPairSize> clients{};
  std::vector<gw_group*> groups;
  std::array<std::array<std::int32_t, 64>, kPairSize> inputs{};
  std::array<std::array<std::int32_t, 64>, kPairSize> outputs{};

  Pair() {
    for (std::uint32_t p = 0; p < kPairSize; ++p) clients[p] = fixture.open(p);
    groups = join_all({clients[0], clients[1]});
  }
  ~Pair() {
    for (gw_group* group : groups) gw_group_free(group);
    for (gw_client* client : clients) gw_close(client);
  }

  /// A call that process `p` may post.
  [[nodiscard]] gw_call call(Collective collective, std::uint32_t p) {
    gw_call call{};
    call.struct_bytes = sizeof call;
    call.collective = static_cast<gw_collective>(collective);
    if (collective == Collective::kBarrier) return call;
    if (collective != Collective::kRecv) call.input = inputs[p].data();
    if (collective != Collective::kSend) call.output = outputs[p].data();
    call.count = kElements;
    call.datatype = GW_INT32;
    if (has_partner(collective)) call.root = 1 - p;
    if (has_root(collective)) call.root = 1;
    return call;
  }
  [[nodiscard]] static CollectiveExtent extent(Collective collective, std::uint32_t p) {
    const std::uint32_t root = has_partner(collective) ? 1 - p : 1;
    return extent_of({collective, DataType::kInt32, RedOp::kSum, kElements, root, 0},
                     {p, kPairSize})
        .value();
  }
  void refused(std::uint32_t p, const gw_call& call, const std::string& text) {
    const std::uint64_t posted = counters_of(clients[p]).ops_posted;
    gw_work* work = nullptr;
    INFO(name_of(static_cast<Collective>(call.collective)));
    CHECK(gw_post(groups[p], &call, &work) == GW_INVALID_ARGUMENT);
    CHECK_THAT(gw_last_error(), Catch::Contains(text));
    CHECK(work == nullptr);
    CHECK(counters_of(clients[p]).ops_posted == posted);
    CHECK(gw_group_error(groups[p]) == GW_OK);
  }
};

}  // namespace

TEST_CASE("a call that needs more memory than there is, by its sizes, is refused") {
  Pair pair;
  std::uint64_t refusals = 0;
  for (const Collective collective : kCollectives) {
    for (std::uint32_t p = 0; p < kPairSize; ++p) {
      const CollectiveExtent needs = Pair::extent(collective, p);
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
      Pair pair;
      pair.fixture.daemon().hold_ops = true;
      for (std::uint32_t p = 0; p < kPairSize; ++p) {
        const CollectiveExtent needs = Pair::extent(collective, p);
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
  Pair pair;
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
  Pair pair;
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

TEST_CASE("a wire format is taken by what it is for, and refused by name elsewhere") {
  Pair pair;
  const auto refused = [&](const gw_call& call, gw_status status, const std::string& text) {
    gw_work* work = nullptr;
    CHECK(gw_post(pair.groups[0], &call, &work) == status);
    CHECK_THAT(gw_last_error(), Catch::Contains(text));
    CHECK(work == nullptr);
  };
  gw_call call = pair.call(Collective::kAllReduce, 0);
  call.wire = GW_WIRE_INT8;
  refused(call, GW_UNSUPPORTED,
          "all-reduce sum of int32 cannot travel as int8: int8 is for fp32 and bf16");
  call.wire = 3;
  refused(call, GW_INVALID_ARGUMENT, "wire is 3: it must be 0 to 2");
  call.wire = -1;
  refused(call, GW_INVALID_ARGUMENT, "wire is -1");
  call.wire = GW_WIRE_BF16;
  call.datatype = GW_BFLOAT16;
  refused(call, GW_UNSUPPORTED, "bf16 is for fp32");
  call.datatype = GW_FLOAT32;
  call.redop = GW_PREMUL_SUM;
  call.factor = 2;
  refused(call, GW_UNSUPPORTED, "a wire format is for sum and avg");
  gw_call broadcast = pair.call(Collective::kBroadcast, 0);
  broadcast.datatype = GW_FLOAT32;
  broadcast.wire = GW_WIRE_BF16;
  refused(broadcast, GW_UNSUPPORTED, "a wire format is for all-reduce, reduce-scatter and reduce");
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce}) {
    run_everywhere(kPairSize, [&](std::uint32_t p, gw_work** work) {
      gw_call good = pair.call(collective, p);
      good.datatype = GW_FLOAT32;
      good.redop = GW_AVG;
      good.wire = GW_WIRE_INT8;
      return gw_post(pair.groups[p], &good, work);
    });
  }
}

TEST_CASE(
    "residuals are for calls with a format, in memory that the daemon has, apart from all else") {
  Pair pair;
  gw_memory* memory = nullptr;
  REQUIRE(gw_memory_alloc(pair.clients[0], 4096, &memory) == GW_OK);
  auto* const shared = static_cast<float*>(gw_memory_address(memory));
  std::array<float, 64> heap{};
  gw_call call = pair.call(Collective::kAllReduce, 0);
  call.datatype = GW_FLOAT32;
  call.residual_out = shared;
  pair.refused(0, call, "of a call whose wire is same");
  call.wire = GW_WIRE_INT8;
  call.residual_out = nullptr;
  call.residual_in = shared;
  pair.refused(0, call, "residual_out is NULL and residual_in is not");
  call.residual_out = shared + kElements - 1;
  pair.refused(0, call, "residual_out overlaps");
  call.residual_out = heap.data();
  pair.refused(0, call, "residual_out is not in memory of the host that gw_memory_alloc() gave");
  call.residual_out = shared + kElements;
  call.residual_in = heap.data();
  pair.refused(0, call, "residual_in is not in memory of the host");
  call.residual_in = static_cast<const float*>(call.output);
  pair.refused(0, call, "or residual_in the output");
  call.residual_in = shared;
  gw_work* works[kPairSize] = {};
  REQUIRE(gw_post(pair.groups[0], &call, &works[0]) == GW_OK);
  // It is used until the op is over.
  CHECK(gw_memory_free(memory) == GW_BUSY);
  gw_call other = pair.call(Collective::kAllReduce, 1);
  other.datatype = GW_FLOAT32;
  other.wire = GW_WIRE_INT8;
  REQUIRE(gw_post(pair.groups[1], &other, &works[1]) == GW_OK);
  for (gw_work* work : works) {
    CHECK(gw_wait(work, 5000) == GW_OK);
    gw_work_free(work);
  }
  CHECK(gw_memory_free(memory) == GW_OK);
}

TEST_CASE("calls whose wire formats differ end by a mismatch that names both") {
  Pair pair;
  std::array<gw_work*, kPairSize> works{};
  for (std::uint32_t p = 0; p < kPairSize; ++p) {
    gw_call call = pair.call(Collective::kAllReduce, p);
    call.datatype = GW_FLOAT32;
    call.wire = p == 0 ? GW_WIRE_SAME : GW_WIRE_INT8;
    REQUIRE(gw_post(pair.groups[p], &call, &works[p]) == GW_OK);
  }
  for (gw_work* work : works) {
    CHECK(gw_wait(work, 5000) == GW_MISMATCH);
    CHECK_THAT(gw_last_error(), Catch::Contains("all-reduce sum of 5 fp32 as int8"));
    gw_work_free(work);
  }
}

TEST_CASE("a receive up to a size tells what came, and leaves what is behind it as it was") {
  Pair pair;
  gw_client* const client = pair.clients[1];
  gw_memory* memory = nullptr;
  REQUIRE(gw_memory_alloc(client, 1, &memory) == GW_OK);
  const auto shared = static_cast<std::int32_t*>(gw_memory_address(memory));
  for (std::int32_t i = 0; i < 64; ++i) pair.inputs[0][static_cast<std::size_t>(i)] = 100 + i;
  for (const bool copied : {true, false}) {
    std::int32_t* const output = copied ? pair.outputs[1].data() : shared;
    for (const std::uint64_t sent : {std::uint64_t{0}, std::uint64_t{3}, kElements}) {
      INFO(sent << " elements, copied: " << copied);
      std::fill_n(output, kElements, -1);
      const std::uint64_t copied_before = counters_of(client).copied_bytes;
      gw_call recv = pair.call(Collective::kRecv, 1);
      recv.output = output;
      recv.up_to = 1;
      gw_call send = pair.call(Collective::kSend, 0);
      send.count = sent;
      gw_work* works[kPairSize] = {};
      REQUIRE(gw_post(pair.groups[1], &recv, &works[1]) == GW_OK);
      CHECK(gw_work_bytes(works[1]) == 0);
      REQUIRE(gw_post(pair.groups[0], &send, &works[0]) == GW_OK);
      for (gw_work* work : works) {
        CHECK(gw_wait(work, kLong) == GW_OK);
        CHECK(gw_work_bytes(work) == 4 * sent);
        gw_work_free(work);
      }
      for (std::uint64_t i = 0; i < kElements; ++i) {
        CHECK(output[i] == (i < sent ? static_cast<std::int32_t>(100 + i) : -1));
      }
      CHECK(counters_of(client).copied_bytes - copied_before == (copied ? 4 * sent : 0));
    }
  }
  gw_memory_free(memory);
  CHECK(gw_work_bytes(nullptr) == 0);
}

TEST_CASE("bytes are told of sends and receives alone, and of those that ended well") {
  Pair pair;
  run_everywhere(kPairSize, [&](std::uint32_t p, gw_work** work) {
    const gw_call call = pair.call(Collective::kAllReduce, p);
    const gw_status status = gw_post(pair.groups[p], &call, work);
    if (status == GW_OK && gw_wait(*work, kLong) == GW_OK) CHECK(gw_work_bytes(*work) == 0);
    return status;
  });
  const auto both = [&](std::uint64_t sent, std::uint32_t up_to, gw_status outcome) {
    gw_call recv = pair.call(Collective::kRecv, 1);
    recv.up_to = up_to;
    gw_call send = pair.call(Collective::kSend, 0);
    send.count = sent;
    gw_work* works[kPairSize] = {};
    REQUIRE(gw_post(pair.groups[0], &send, &works[0]) == GW_OK);
    REQUIRE(gw_post(pair.groups[1], &recv, &works[1]) == GW_OK);
    CHECK(gw_wait(works[1], kLong) == outcome);
    CHECK(gw_work_bytes(works[1]) == (outcome == GW_OK ? 4 * sent : 0));
    for (gw_work* work : works) gw_work_free(work);
  };
  both(kElements, 0, GW_OK);
  both(kElements + 1, 1, GW_MISMATCH);
  pair.fixture.daemon().bytes_lie = 21;
  both(0, 1, GW_INTERNAL);
  CHECK_THAT(gw_last_error(), Catch::Contains("21 bytes came to a receive with room for 20"));
  both(kElements, 0, GW_OK);  // whose size is known here
}

TEST_CASE("up_to is 0 or 1, of a recv, and of callers that know it") {
  Pair pair;
  for (const Collective collective : kCollectives) {
    if (collective == Collective::kRecv) continue;
    gw_call call = pair.call(collective, 0);
    call.up_to = 1;
    pair.refused(0, call, "up_to of " + std::string(name_of(collective)) + " is 1");
  }
  gw_call recv = pair.call(Collective::kRecv, 1);
  recv.up_to = 2;
  pair.refused(1, recv, "up_to is 2");
  recv.up_to = 1;
  recv.reserved_up_to = 1;
  pair.refused(1, recv, "reserved_up_to is 1");
  // As compiled before the field was there; what follows the struct is not its own.
  recv.struct_bytes = offsetof(gw_call, up_to);
  gw_call send = pair.call(Collective::kSend, 0);
  --send.count;
  gw_work* works[kPairSize] = {};
  REQUIRE(gw_post(pair.groups[0], &send, &works[0]) == GW_OK);
  REQUIRE(gw_post(pair.groups[1], &recv, &works[1]) == GW_OK);
  CHECK(gw_wait(works[1], kLong) == GW_MISMATCH);
  for (gw_work* work : works) gw_work_free(work);
}

TEST_CASE("a field that a call does not take is refused by its name") {
  Pair pair;
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
  Pair pair;
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
