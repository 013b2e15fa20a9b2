// SPDX-License-Identifier: BSD-3-Clause
// What the stand is worth: kernels with one instruction changed are caught, each of them.
#include <catch2/catch.hpp>
#include <cstdio>

#include "mutate.h"
#include "stand.h"

namespace {

using namespace gradwire;
using namespace gradwire::test;
using ptx::Mutant;
using ptx::mutated;
using ptx::PtxBackend;
using ptx::Way;

/// In sm_90's text; remade PTX may move them.
constexpr Mutant kMutants[] = {
    {"no barrier before a tile's CRC", "sum_upINS1_9PlainLoadE", "bar.sync", 0, nullptr},
    {"a CRC's parts summed over one lane's", "sum_upINS1_9PlainLoadE", "shfl.sync.bfly.b32", 0,
     "shfl.sync.idx.b32"},
    {"one step of a CRC's sum left out", "sum_upINS1_9PlainLoadE", "shfl.sync.bfly.b32", 3,
     nullptr},
    {"a vector too many at a tile's end", "sum_kernelINS0_11ScalarFloatIfE", "setp.ge.u32", 1,
     "setp.gt.u32"},
    {"a last tile that is whole", "sum_kernelINS0_12ScalarBfloatE", "min.u32", 0, "max.u32"},
    {"a sum where avg divides", "sum_kernelINS0_11ScalarFloatIfE", "div.rn.f32", 0, "add.rn.f32"},
    {"results are gathered and written at once", "sum_kernelINS0_11ScalarFloatIfE", "bar.sync", 0,
     nullptr},
    {"a tile's results are overwritten by the next one's", "sum_kernelINS0_12ScalarBfloatE",
     "bar.sync", 1, nullptr},
    {"no rounding between two ranks of a fold", "run_tileINS0_9PlainLoadE", "setp.eq.s16", 64,
     "setp.ne.s16"},
    {"a rank too many in a fold", "run_tileINS0_9PlainLoadE", "setp.ge.u32", 24, "setp.gt.u32"},
    {"another rank's part in a fold", "run_tileINS0_9PlainLoadE", "add.s32", 138, "sub.s32"},
    {"a vector too many in a fold of ranks", "run_tileINS0_9PlainLoadE", "setp.lt.u32", 121,
     "setp.le.u32"},
    {"a contribution of members that is rounded", "run_tileINS0_9PlainLoadE", "setp.eq.s16", 341,
     "setp.ne.s16"},
    {"a factor that is added", "run_tileINS0_9PlainLoadE", "mul.rn.f32", 40, "add.rn.f32"},
    {"bor where it is bxor", "run_tileINS0_9PlainLoadE", "xor.b32", 0, "or.b32"},
    {"a contribution that is rounded, persistent", "persistent_kernel", "setp.eq.s16", 322,
     "setp.ne.s16"},
    {"nobody waits for the entry", "persistent_kernel", "bar.sync", 0, nullptr},
    {"the entry changes while it is read", "persistent_kernel", "bar.sync", 1, nullptr},
    {"nobody waits for the batch's first vectors", "persistent_kernel", "bar.sync", 2, nullptr},
    {"nobody waits for the batch's copy", "persistent_kernel", "bar.sync", 3, nullptr},
    {"a block arrives before its threads are through", "persistent_kernel", "bar.sync", 4, nullptr},
    {"a block arrives before its stores have", "persistent_kernel", "membar.sys", 0, nullptr},
    {"the host is never told", "persistent_kernel", "st.relaxed.sys.global.u32", 0, nullptr},
    {"what is passed on is not said", "persistent_kernel", "st.release.gpu.global.u32", 0, nullptr},
    {"lanes that go by what each has read", "persistent_kernel", "vote.sync.ballot.b32", 0,
     nullptr},
};

/// Batch after batch, with threads that are cut off every few instructions and often held up; looks
/// at each sum as soon as the kernel says that it is done.
std::string judge_serving(const ptx::Module& module, std::uint64_t seed, bool late_stores) {
  std::mt19937_64 random(seed);
  ptx::Machine machine(module,
                       {.seed = seed, .turn = 3, .falls_behind = 60, .late_stores = late_stores});
  try {
    ptx::PersistentKernel kernel(machine, 4, ~std::uint64_t{0});
    for (int batch = 0; batch < 6; ++batch) {
      ptx::OneSum sum(machine);
      if (batch % 3 != 0)
        sum.move_addresses(Batch::kAddresses - 3 * static_cast<std::uint32_t>(batch + 1));
      for (std::uint64_t steps = random() % 60; steps > 0; --steps) machine.step();
      const auto slot = static_cast<std::uint32_t>(random() % kQueueSlots);
      kernel.ring(slot, sum.batch);
      kernel.wait_for(slot);
      if (!sum.is_right()) return "a batch that is said to be done is not";
    }
    kernel.stop();
  } catch (const ptx::Fault& fault) {
    return fault.what();
  }
  return {};
}

/// Folds of ranks and members, as ops off the ring have them.
std::string judge_folds(const ptx::Module& module, Way way) {
  struct Folded {
    DataType type;
    RedOp redop;
    std::size_t ranks;
    std::size_t members;
  };
  constexpr Folded kFolds[] = {
      {DataType::kBfloat16, RedOp::kAvg, 5, 2},  // four ranks are asked for at once
      {DataType::kBfloat16, RedOp::kSum, 1, 3},  // what travels, alone
      {DataType::kFloat32, RedOp::kPremulSum, 5, 2},
      {DataType::kInt32, RedOp::kBxor, 5, 2},
  };
  std::mt19937_64 random(5);
  PtxBackend backend(module, way, {.finds_races = way == Way::kLaunch});
  for (const Folded& each : kFolds) {
    OrderCase c{};
    c.type = each.type;
    c.redop = each.redop;
    c.ranks = each.ranks;
    c.members = each.members;
    c.count = 514;  // a vector for each thread, and two elements
    c.outputs = 1;
    c.wide = c.finalize = c.packet = true;
    const std::string wrong = ptx::check(c, backend, random);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

/// @return what is wrong with the kernels, or an empty string.
std::string judge(const std::string& text) {
  const ptx::Module module = ptx::parse(text);
  std::mt19937_64 random(3);
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const std::size_t members : {1u, 2u}) {  // two sources, and more
      for (const auto& [count, misalignment] :
           {std::pair{1u, 0u}, std::pair{1027u, 0u}, std::pair{4095u, 0u}, std::pair{1027u, 2u}}) {
        PtxBackend backend(module, Way::kLaunch, {.finds_races = count < 2000});
        Case c{type,    RedOp::kAvg, Kind::kReduceAndStore,
               members, count,       misalignment,
               true,    true,        false,
               6};
        std::string wrong = ptx::check(c, backend, random);
        if (wrong.empty()) wrong = ptx::check_batch({c, c, c, c}, backend, random);
        if (!wrong.empty()) return wrong;
      }
    }
  }
  for (const Way way : {Way::kLaunch, Way::kPersistent}) {
    const std::string wrong = judge_folds(module, way);
    if (!wrong.empty()) return wrong;
  }
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    for (const bool late_stores : {false, true}) {
      const std::string wrong = judge_serving(module, seed, late_stores);
      if (!wrong.empty()) return wrong;
    }
  }
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    PtxBackend backend(module, Way::kPersistent, {.seed = seed, .turn = 300});
    const std::string wrong =
        ptx::check_batch(ptx::random_cases(6, false, random), backend, random);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

TEST_CASE("a barrier that is missing is a race, whatever order the threads run in", "[mutants]") {
  const Mutant mutant = kMutants[0];
  const ptx::Module module = ptx::parse(mutated(ptx::text_of("sm_90"), mutant));
  std::mt19937_64 random(1);
  PtxBackend backend(module, Way::kLaunch, {.finds_races = true});
  Case c{DataType::kFloat32, RedOp::kSum, Kind::kReduceInPacket, 2, 1027, 0, true, false, false, 2};
  std::string wrong;
  for (int i = 0; i < 4 && wrong.empty(); ++i) wrong = ptx::check_batch({c, c}, backend, random);
  CHECK_THAT(wrong, Catch::Contains("a race with another thread"));
}

TEST_CASE("every mutant of the kernels is caught", "[mutants]") {
  const std::string text = ptx::text_of("sm_90");
  REQUIRE(judge(text) == "");
  for (const Mutant& mutant : kMutants) {
    INFO(mutant.what);
    const std::string changed = mutated(text, mutant);
    CHECK(changed != text);
    const std::string caught = judge(changed);
    std::printf("%s: %s\n", mutant.what, caught.empty() ? "not caught" : caught.c_str());
    CHECK(caught != "");
  }
}

}  // namespace
