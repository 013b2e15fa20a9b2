// SPDX-License-Identifier: BSD-3-Clause
// Wire formats and residuals of a gw_call, and receives up to a size.
#include <algorithm>
#include <array>

#include "call_pair.h"

using namespace gradwire;
using namespace gradwire::test;

TEST_CASE("a wire format is taken by what it is for, and refused by name elsewhere") {
  CallPair pair;
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
  CallPair pair;
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
  gw_call next = pair.call(Collective::kAllReduce, 0);
  next.datatype = GW_FLOAT32;
  next.wire = GW_WIRE_INT8;
  next.input = shared + 4 * kElements;
  next.output = shared + 6 * kElements;
  const auto busy = [&] {
    gw_work* work = nullptr;
    CHECK(gw_post(pair.groups[0], &next, &work) == GW_BUSY);
    CHECK_THAT(gw_last_error(), Catch::Contains("overlaps that of all-reduce 1 of rank 0"));
  };
  next.residual_out = shared + 2 * kElements - 1;  // what the first writes
  busy();
  next.residual_out = shared + kElements - 1;  // what the first reads
  busy();
  next.residual_out = shared + 3 * kElements;
  next.residual_in = shared + kElements;  // what the first writes
  busy();
  next.residual_in = nullptr;
  next.output = shared + kElements;
  busy();
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
  CallPair pair;
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
  CallPair pair;
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

TEST_CASE("calls of one stream of two processes do not wait for those of another") {
  CallPair pair;
  gw_work* works[4] = {};
  for (const std::uint32_t stream : {0u, 63u}) {
    gw_call recv = pair.call(Collective::kRecv, 1);
    recv.output = &pair.outputs[1][stream == 0 ? 0 : 32];
    recv.pair_stream = stream;
    REQUIRE(gw_post(pair.groups[1], &recv, &works[stream == 0 ? 0 : 1]) == GW_OK);
  }
  for (const std::uint32_t stream : {63u, 0u}) {
    gw_call send = pair.call(Collective::kSend, 0);
    send.input = &pair.inputs[0][stream == 0 ? 0 : 32];
    pair.inputs[0][stream == 0 ? 0 : 32] = static_cast<std::int32_t>(stream);
    send.pair_stream = stream;
    gw_work*& sent = works[stream == 0 ? 2 : 3];
    REQUIRE(gw_post(pair.groups[0], &send, &sent) == GW_OK);
    CHECK(gw_wait(sent, kLong) == GW_OK);
    CHECK(gw_wait(works[stream == 0 ? 0 : 1], kLong) == GW_OK);
    CHECK(pair.outputs[1][stream == 0 ? 0 : 32] == static_cast<std::int32_t>(stream));
    if (stream != 0) CHECK(gw_wait(works[0], 0) == GW_TIMED_OUT);
  }
  for (gw_work* work : works) gw_work_free(work);
}

TEST_CASE("bytes are told of sends and receives alone, and of those that ended well") {
  CallPair pair;
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
  CallPair pair;
  for (const Collective collective : kCollectives) {
    if (collective == Collective::kRecv) continue;
    gw_call call = pair.call(collective, 0);
    call.up_to = 1;
    pair.refused(0, call, "up_to of " + std::string(name_of(collective)) + " is 1");
    if (has_partner(collective)) continue;
    call.up_to = 0;
    call.pair_stream = 1;
    pair.refused(0, call, "pair_stream of " + std::string(name_of(collective)) + " is 1");
  }
  gw_call recv = pair.call(Collective::kRecv, 1);
  recv.up_to = 2;
  pair.refused(1, recv, "up_to is 2");
  recv.up_to = 1;
  recv.pair_stream = GW_MAX_STREAMS;
  pair.refused(1, recv, "pair_stream is 64");
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
