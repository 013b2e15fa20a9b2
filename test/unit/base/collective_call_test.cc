// SPDX-License-Identifier: BSD-3-Clause
#include "base/collective_call.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace gradwire;

namespace {

CollectiveCall call_of(Collective collective, std::uint64_t count, std::uint32_t root = 0) {
  CollectiveCall call;
  call.collective = collective;
  call.count = count;
  call.root = root;
  return call;
}

}  // namespace

TEST_CASE("each process reads and writes what its collective says") {
  struct Expected {
    Collective collective;
    std::uint64_t input, output;  // of process 2 of 4, with root 2
    std::uint64_t input_elsewhere, output_elsewhere;
    std::uint64_t in_place_at;
  };
  const Expected table[] = {
      {Collective::kAllReduce, 40, 40, 40, 40, 0},
      {Collective::kReduce, 40, 40, 40, 0, 0},
      {Collective::kBroadcast, 40, 40, 0, 40, 0},
      {Collective::kAllGather, 40, 160, 40, 160, 80},
      {Collective::kReduceScatter, 160, 40, 160, 40, 80},
      {Collective::kBarrier, 0, 0, 0, 0, 0},
  };
  for (const Expected& row : table) {
    INFO(name_of(row.collective));
    const std::uint32_t root = has_root(row.collective) ? 2 : 0;
    const auto here = extent_of(call_of(row.collective, 10, root), {2, 4});
    const auto elsewhere = extent_of(call_of(row.collective, 10, root), {1, 4});
    REQUIRE((here && elsewhere));
    CHECK(here->input == row.input);
    CHECK(here->output == row.output);
    CHECK(here->in_place_at == row.in_place_at);
    CHECK(elsewhere->input == row.input_elsewhere);
    CHECK(elsewhere->output == row.output_elsewhere);
  }
}

TEST_CASE("an op of 2^64 bytes or more has no extent") {
  const std::uint64_t most = UINT64_MAX / 4;
  CHECK(extent_of(call_of(Collective::kAllReduce, most), {0, 4}));
  CHECK_FALSE(extent_of(call_of(Collective::kAllReduce, most + 1), {0, 4}));
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    CHECK(extent_of(call_of(collective, most / 4096), {4095, 4096}));
    CHECK_FALSE(extent_of(call_of(collective, most / 4096 + 1), {0, 4096}));
    // So large that count x processes wraps to few elements.
    CHECK_FALSE(extent_of(call_of(collective, (std::uint64_t{1} << 52) + 1), {0, 4096}));
    CHECK_FALSE(extent_of(call_of(collective, UINT64_MAX), {0, 1}));
  }
}

TEST_CASE("input and output are apart or in place, by their collective's rule") {
  // Process 1 of 3: blocks of 40 bytes.
  const auto gather = extent_of(call_of(Collective::kAllGather, 10), {1, 3}).value();
  const auto scatter = extent_of(call_of(Collective::kReduceScatter, 10), {1, 3}).value();
  const auto reduce = extent_of(call_of(Collective::kAllReduce, 10), {1, 3}).value();
  constexpr std::uintptr_t kAt = 4096;
  CHECK(may_lie(kAt + 40, kAt, gather));  // its own block
  CHECK(may_lie(kAt - 40, kAt, gather));  // right before
  CHECK(may_lie(kAt + 120, kAt, gather));
  for (const int off : {-39, -4, 0, 4, 39, 41, 80, 119}) {
    CHECK_FALSE(may_lie(kAt + static_cast<std::uintptr_t>(off), kAt, gather));
    CHECK_FALSE(may_lie(kAt, kAt + static_cast<std::uintptr_t>(off), scatter));
  }
  CHECK(may_lie(kAt, kAt + 40, scatter));
  CHECK(may_lie(kAt, kAt - 40, scatter));
  CHECK(may_lie(kAt, kAt + 120, scatter));
  CHECK(may_lie(kAt, kAt, reduce));
  CHECK(may_lie(kAt, kAt + 40, reduce));
  CHECK_FALSE(may_lie(kAt, kAt + 4, reduce));
  CHECK_FALSE(may_lie(kAt, kAt - 39, reduce));
  CHECK(may_lie(0, kAt, CollectiveExtent{0, 40, 0}));
  CHECK(may_lie(kAt + 1, kAt, CollectiveExtent{0, 40, 0}));
}

TEST_CASE("a call is told with what its collective takes, and fits its text") {
  CollectiveCall call = call_of(Collective::kAllReduce, 1000);
  call.tag = 7;
  CHECK(text_of(call).text == std::string("all-reduce sum of 1000 fp32 with tag 7"));
  call.collective = Collective::kBroadcast;
  call.root = 3;
  CHECK(text_of(call).text == std::string("broadcast of 1000 fp32 from process 3 with tag 7"));
  call.collective = Collective::kBarrier;
  CHECK(text_of(call).text == std::string("barrier with tag 7"));
  const CollectiveCall longest{Collective::kReduce, DataType::kFloat64, RedOp::kProd,
                               UINT64_MAX,          UINT32_MAX,         UINT32_MAX};
  CHECK(text_of(longest).text ==
        std::string("reduce prod of 18446744073709551615 fp64 to process 4294967295 with tag "
                    "4294967295"));
  CollectiveCall with_format = longest;
  with_format.redop = RedOp::kSum;
  with_format.datatype = DataType::kFloat32;
  with_format.wire = WireFormat::kInt8;
  CHECK(text_of(with_format).text ==
        std::string("reduce sum of 18446744073709551615 fp32 as int8 to process 4294967295 with "
                    "tag 4294967295"));
}
