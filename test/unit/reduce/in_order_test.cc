// SPDX-License-Identifier: BSD-3-Clause
// The contributions of several ranks folded at once, as direct and two-step ops do: the ring's
// bits.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "in_order_cases.h"
#include "reduce/backend.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

TEST_CASE("a fold in order gives the ring's bits, for all datatypes, redops and ranks") {
  Reach anywhere;
  std::size_t index = 0;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2}) {
    const auto backend = make_cpu_backend(4, isa);
    if (backend == nullptr) continue;
    CHECK(backend->sources_max() >= kMaxRanks);
    for (const DataType type : kDataTypes) {
      for (const RedOp redop : kRedOps) {
        for_each_order_case(type, redop, [&](const OrderCase& c, std::mt19937_64& random) {
          if (index++ % one_case_in() != 0) return;
          const std::string wrong = run(c, *backend, random, anywhere);
          if (!wrong.empty()) FAIL(wrong);
        });
      }
    }
  }
  SUCCEED();
}

TEST_CASE("as many ranks as a group may have are folded at once") {
  Reach anywhere;
  std::mt19937_64 random(2);
  const auto backend = make_cpu_backend(4);
  for (const bool wide : {false, true}) {
    const OrderCase c{
        DataType::kBfloat16, RedOp::kSum, kMaxRanks, 1, wide, 33, 2, false, 1, true, false};
    CHECK(run(c, *backend, random, anywhere) == "");
  }
}

TEST_CASE("members' contributions that are rounded before they are added give other bits") {
  // Why contributions travel wide: 1 + 2^-8 is no bf16, so a rank's two members come to 1, and to
  // 1 + 2^-7 together with the other rank's 2^-8.
  const std::uint16_t one = 0x3f80;
  const std::uint16_t small = 0x3b80;  // 2^-8
  const auto backend = make_cpu_backend(4);
  const auto* first = reinterpret_cast<const std::byte*>(&small);
  const std::byte* members[] = {reinterpret_cast<const std::byte*>(&one), first};
  float wide = 0;
  Entry load;
  load.kind = Kind::kLoadWide;
  load.datatype = DataType::kBfloat16;
  load.member_count = 2;
  load.count = 1;
  load.packet = reinterpret_cast<std::byte*>(&wide);
  load.inputs = members;
  REQUIRE(backend->run(load));
  CHECK(wide == 1.00390625f);
  std::uint16_t narrow = 0;
  load.kind = Kind::kLoad;
  load.packet = reinterpret_cast<std::byte*>(&narrow);
  REQUIRE(backend->run(load));
  CHECK(narrow == one);

  float other = 0x1p-8f;
  std::uint16_t sum = 0;
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&other),
                                reinterpret_cast<const std::byte*>(&wide)};
  Entry fold;
  fold.kind = Kind::kFoldInOrder;
  fold.datatype = DataType::kBfloat16;
  fold.source_count = 2;
  fold.wide = true;
  fold.count = 1;
  fold.packet = reinterpret_cast<std::byte*>(&sum);
  fold.inputs = sources;
  REQUIRE(backend->run(fold));
  CHECK(sum == 0x3f81);
}

TEST_CASE("a fold in order that is out of its bounds fails and touches nothing") {
  const auto backend = make_cpu_backend(16);
  float packet = 3;
  float source = 2;
  const auto* base = reinterpret_cast<const std::byte*>(&source);
  Entry good;
  good.kind = Kind::kFoldInOrder;
  good.count = 1;
  good.source_count = 1;
  good.packet = reinterpret_cast<std::byte*>(&packet);
  good.inputs = &base;
  std::vector<Entry> bad(8, good);
  bad[0].source_count = 0;
  bad[1].source_count = static_cast<std::uint16_t>(backend->sources_max() + 1);
  bad[2].inputs = nullptr;
  bad[3].packet = nullptr;
  bad[4].count = 0;
  bad[5].divisor = 0;
  bad[6].crc = true;
  bad[7].kind = static_cast<Kind>(static_cast<int>(Kind::kFoldInOrder) + 1);
  for (const Entry& entry : bad) CHECK_FALSE(backend->run(entry));
  CHECK(packet == 3);
  CHECK(backend->counters().bytes == 0);
  CHECK(backend->run(good));
  CHECK(packet == 2);
  CHECK(backend->counters().chunks_reduced == 1);
}

}  // namespace
