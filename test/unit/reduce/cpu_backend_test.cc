// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cases.h"
#include "reduce/backend.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

std::vector<Isa> isas() {
  std::vector<Isa> found;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2}) {
    if (make_cpu_backend(1, isa) != nullptr) {
      found.push_back(isa);
    }
  }
  return found;
}

/// Checks the case on every instruction set of this machine.
void check(const Case& c, std::vector<std::unique_ptr<Backend>>& backends,
           std::mt19937_64& random) {
  const World before(c, random);
  World expected = before;
  expect(c, expected);
  Reach anywhere;
  for (const auto& backend : backends) {
    const std::string wrong = run(c, *backend, before, expected, anywhere);
    if (!wrong.empty()) {
      FAIL(wrong);
    }
  }
}

TEST_CASE("every kind, count and member count gives the reference's bits") {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const Isa isa : isas()) {
    backends.push_back(make_cpu_backend(4, isa));
  }
  std::size_t index = 0;
  for (const DataType type : kDataTypes) {
    for (const RedOp redop : kRedOps) {
      for_each_case(type, redop, [&](const Case& c, std::mt19937_64& random) {
        if (index++ % one_case_in() == 0) check(c, backends, random);
      });
    }
  }
  SUCCEED();
}

TEST_CASE("auto picks the best instruction set and every backend has a name") {
  const auto scalar = make_cpu_backend(1, Isa::kScalar);
  REQUIRE(scalar != nullptr);
  CHECK(std::string(scalar->name()) == "cpu scalar");
  const auto avx2 = make_cpu_backend(1, Isa::kAvx2);
  const auto best = make_cpu_backend(1);
  REQUIRE(best != nullptr);
  CHECK(std::string(best->name()) == (avx2 != nullptr ? "cpu avx2" : "cpu scalar"));
}

TEST_CASE("submit takes no more than there is room for completions") {
  const auto backend = make_cpu_backend(3);
  float packet = 1;
  float input = 2;
  const auto* input_base = reinterpret_cast<const std::byte*>(&input);
  std::array<Entry, 5> entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].kind = Kind::kReduceInPacket;
    entries[i].count = 1;
    entries[i].packet = reinterpret_cast<std::byte*>(&packet);
    entries[i].inputs = &input_base;
    entries[i].cookie = i;
  }
  CHECK(backend->submit(entries) == 3);
  CHECK(packet == 7);
  CHECK(backend->submit(entries) == 0);
  std::array<Completion, 8> done;
  CHECK(backend->poll(std::span(done).first(2)) == 2);
  CHECK(done[0].cookie == 0);
  CHECK(done[1].cookie == 1);
  CHECK(backend->submit(std::span(entries).subspan(3)) == 2);  // Round the end of the ring.
  CHECK(backend->poll(done) == 3);
  CHECK(done[0].cookie == 2);
  CHECK(done[1].cookie == 3);
  CHECK(done[2].cookie == 4);
  CHECK(backend->poll(done) == 0);
  CHECK(packet == 11);
}

TEST_CASE("an entry out of its bounds fails and touches nothing") {
  const auto backend = make_cpu_backend(16);
  const float original = 3;
  float packet = original;
  float input = 2;
  const auto* input_base = reinterpret_cast<const std::byte*>(&input);
  Entry good;
  good.kind = Kind::kReduceInPacket;
  good.count = 1;
  good.packet = reinterpret_cast<std::byte*>(&packet);
  good.inputs = &input_base;
  std::vector<Entry> bad(12, good);
  bad[0].count = 0;
  bad[1].member_count = 0;
  bad[2].member_count = kMaxMembers + 1;
  bad[3].divisor = 0;
  bad[4].divisor = kMaxProcesses + 1;
  bad[5].datatype = static_cast<DataType>(kDataTypeCount);
  bad[6].redop = static_cast<RedOp>(kRedOpCount);
  bad[7].packet = nullptr;
  bad[8].inputs = nullptr;
  bad[9].kind = Kind::kReduceAndStore;  // Has no outputs.
  bad[10].redop = RedOp::kBxor;         // of fp32
  bad[11].datatype = DataType::kInt32;
  bad[11].redop = RedOp::kPremulSum;
  REQUIRE(backend->submit(bad) == bad.size());
  std::array<Completion, 16> done;
  REQUIRE(backend->poll(done) == bad.size());
  for (std::size_t i = 0; i < bad.size(); ++i) {
    INFO("entry " << i);
    CHECK_FALSE(done[i].ok);
  }
  CHECK(packet == original);
  CHECK(backend->counters().bytes == 0);
}

TEST_CASE("counters tell folds onto packets from moves") {
  const auto backend = make_cpu_backend(16);
  std::array<double, 4> packet{};
  std::array<double, 4> memory{};
  const auto* input = reinterpret_cast<const std::byte*>(memory.data());
  auto* output = reinterpret_cast<std::byte*>(memory.data());
  for (const Kind kind : kKinds) {
    Entry entry;
    entry.kind = kind;
    entry.datatype = DataType::kFloat64;
    entry.count = 4;
    entry.packet = reinterpret_cast<std::byte*>(packet.data());
    entry.inputs = &input;
    entry.outputs = &output;
    REQUIRE(backend->submit({&entry, 1}) == 1);
  }
  CHECK(backend->counters().chunks_reduced == 3);
  CHECK(backend->counters().chunks_moved == 4);
  CHECK(backend->counters().bytes == 7 * 32);
}

}  // namespace
