// SPDX-License-Identifier: BSD-3-Clause
// The reduce kernels as nvcc compiled them, on the interpreter: every datatype, redop and kind, the
// bits compared with the reference's; batches of many entries; CRCs; the persistent kernel.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "stand.h"

namespace {

using namespace gradwire;
using namespace gradwire::test;
using ptx::MachineOptions;
using ptx::PtxBackend;
using ptx::Way;

/// GRADWIRE_GPU_CASES=N runs one case in N, as cuda_backend_test does.
std::size_t one_in() {
  const char* const text = std::getenv("GRADWIRE_GPU_CASES");
  return text == nullptr ? 1 : std::max<std::size_t>(std::strtoull(text, nullptr, 10), 1);
}

/// Those of `for_each` for all datatypes and redops, but for those that `step` leaves out. A step
/// that has no divisor in common with how many counts and ranks there are goes through all of them.
template <class ForEach>
void check_each(const char* architecture, Way way, const MachineOptions& options, std::size_t step,
                ForEach&& for_each) {
  const ptx::Module module = ptx::parse(ptx::text_of(architecture));
  PtxBackend backend(module, way, options);
  step *= one_in();
  std::size_t index = 0;
  for (const DataType type : kDataTypes) {
    for (const RedOp redop : kRedOps) {
      for_each(type, redop, [&](const auto& c, std::mt19937_64& random) {
        if (++index % step != 0) return;
        const std::string wrong = ptx::check(c, backend, random);
        if (!wrong.empty()) FAIL(architecture << ": " << wrong);
      });
    }
  }
  CHECK(backend.machine().instructions() > 100'000);
}

/// All but the largest.
void check_cases(const char* architecture, Way way, const MachineOptions& options,
                 std::size_t step) {
  check_each(architecture, way, options, step, [](DataType type, RedOp redop, auto&& check) {
    for_each_case(type, redop, [&](const Case& c, std::mt19937_64& random) {
      if (c.members < 64 || c.count <= 65) check(c, random);
    });
  });
}

void check_orders(const char* architecture, Way way, const MachineOptions& options,
                  std::size_t step) {
  check_each(architecture, way, options, step, [](DataType type, RedOp redop, auto&& check) {
    for_each_order_case(type, redop, check);
  });
}

TEST_CASE("launched kernels give the reference's bits for every datatype, redop and kind") {
  check_cases("sm_90", Way::kLaunch, {}, 1);
  check_cases("sm_100", Way::kLaunch, {.seed = 3}, 3);
}

TEST_CASE("folds in order of many ranks give the ring's bits, launched and persistent") {
  check_orders("sm_90", Way::kLaunch, {}, 2);
  check_orders("sm_90", Way::kPersistent, {.seed = 6}, 47);
  check_orders("sm_100", Way::kLaunch, {.seed = 3}, 9);
  check_orders("sm_100", Way::kPersistent, {}, 47);
}

TEST_CASE("a fold of as many sources as an item may have gives the ring's bits") {
  for (const char* architecture : ptx::kArchitectures) {
    const ptx::Module module = ptx::parse(ptx::text_of(architecture));
    for (const Way way : {Way::kLaunch, Way::kPersistent}) {
      PtxBackend backend(module, way, {});
      std::mt19937_64 random(7);
      OrderCase c{};
      c.type = DataType::kBfloat16;
      c.redop = RedOp::kAvg;
      c.ranks = Batch::kSourcesMax;
      c.members = 1;
      c.count = 33;
      c.finalize = c.packet = true;
      c.outputs = kMaxMembers;
      CHECK(ptx::check(c, backend, random) == "");
    }
  }
}

TEST_CASE("the kernel for all datatypes gives a sum's bits too") {
  check_cases("sm_90", Way::kGeneral, {}, 11);
  check_cases("sm_100", Way::kGeneral, {}, 11);
}

TEST_CASE("the persistent kernel gives the reference's bits, in any order of threads") {
  check_cases("sm_90", Way::kPersistent, {}, 31);
  check_cases("sm_100", Way::kPersistent, {.seed = 5, .turn = 500}, 31);
}

TEST_CASE("batches of many entries touch nothing else, and give the packets' CRCs") {
  for (const char* architecture : ptx::kArchitectures) {
    const ptx::Module module = ptx::parse(ptx::text_of(architecture));
    for (const Way way : {Way::kLaunch, Way::kPersistent}) {
      std::mt19937_64 random(static_cast<std::uint64_t>(way) + 20);
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        PtxBackend backend(module, way, {.seed = seed, .turn = 2'000});
        const auto cases = ptx::random_cases(1 + random() % 24, seed % 2 == 0, random);
        const auto folds = ptx::random_folds(seed % 2 == 0 ? 0 : 1 + random() % 3, random);
        INFO(architecture << " seed " << seed);
        CHECK(ptx::check_batch(cases, backend, random, folds) == "");
      }
    }
  }
}

TEST_CASE("no two threads touch the same bytes unordered, and stores may reach others late") {
  for (const char* architecture : ptx::kArchitectures) {
    const ptx::Module module = ptx::parse(ptx::text_of(architecture));
    for (const Way way : {Way::kLaunch, Way::kPersistent}) {
      std::mt19937_64 random(static_cast<std::uint64_t>(way) + 40);
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        PtxBackend backend(
            module, way,
            {.seed = seed, .turn = 2'000, .late_stores = seed % 2 == 1, .finds_races = true});
        INFO(architecture << " seed " << seed);
        const auto folds = ptx::random_folds(1 + seed % 2, random);
        CHECK(ptx::check_batch(ptx::random_cases(1 + random() % 6, false, random), backend, random,
                               folds) == "");
      }
    }
  }
}

TEST_CASE("a CRC costs a thread less than 2,500 instructions, in a tail too") {
  for (const char* architecture : ptx::kArchitectures) {
    const ptx::Module module = ptx::parse(ptx::text_of(architecture));
    for (const std::uint32_t bytes : {8192u, 8176u, 100u}) {
      PtxBackend backend(module, Way::kLaunch, {});
      std::vector<std::uint64_t> packet(bytes / 8 + 1);
      backend.machine().memory.add(packet.data(), packet.size() * 8);
      Entry entry;
      entry.kind = Kind::kCheck;
      entry.datatype = DataType::kUint8;
      entry.count = bytes;
      entry.packet = reinterpret_cast<std::byte*>(packet.data());
      const auto instructions = [&](bool crc) {
        entry.crc = crc;
        const std::uint64_t before = backend.machine().instructions();
        CHECK(backend.submit({&entry, 1}) == 1);
        CHECK(backend.fault() == "");
        return backend.machine().instructions() - before;
      };
      const std::uint64_t tiles = (bytes + kTileBytes - 1) / kTileBytes;
      const std::uint64_t without = instructions(false);
      const std::uint64_t each = (instructions(true) - without) / (tiles * kThreadsPerBlock);
      INFO(architecture << ", " << bytes << " bytes: " << each);
      CHECK(each < 2500);
      CHECK(each > 100);
    }
  }
}

TEST_CASE("the persistent kernel serves slots in any order, and ends when it is told to or idle") {
  for (const char* architecture : ptx::kArchitectures) {
    const ptx::Module module = ptx::parse(ptx::text_of(architecture));
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      ptx::Machine machine(module, {.seed = seed, .turn = 1'000});
      // Its two batches take up to 300,000 ns of the machine's time.
      ptx::PersistentKernel kernel(machine, 4, seed % 2 == 0 ? ~std::uint64_t{0} : 1'000'000);
      ptx::OneSum first(machine), second(machine), third(machine);
      kernel.ring(9, first.batch);
      kernel.ring(2, second.batch);
      kernel.wait_for(2);
      CHECK(second.is_right());
      kernel.wait_for(9);
      CHECK(first.is_right());
      CHECK_FALSE(kernel.parked());
      kernel.ring(9, third.batch);
      kernel.wait_for(9);
      CHECK(third.is_right());
      seed % 2 == 0 ? kernel.stop() : kernel.wait_until_idle();
      CHECK(kernel.parked());
    }
  }
}

TEST_CASE("a tail is not read past its end, nor memory that nobody has registered") {
  const ptx::Module module = ptx::parse(ptx::text_of("sm_90"));
  ptx::Machine machine(module, {});
  ptx::OneSum sum(machine);
  machine.memory.add(sum.arrays[1].data(), (ptx::OneSum::kCount - 1) * sizeof(float));
  const auto launch = [&] {
    machine.run(module.function("sum_kernelINS0_11ScalarFloatIfE"),
                std::as_bytes(std::span(&sum.batch, 1)), 2, kThreadsPerBlock);
  };
  CHECK_THROWS_WITH(launch(), Catch::Contains("an illegal address"));
  machine.memory.add(sum.arrays[1].data(), ptx::OneSum::kCount * sizeof(float));
  sum.batch.addresses[0] += 4;  // said to be aligned to 16 bytes
  CHECK_THROWS_WITH(launch(), Catch::Contains("misaligned"));
}

TEST_CASE("what the interpreter does not know fails by name") {
  const auto kernel = [](const std::string& body) {
    return ".version 9.0\n.target sm_90\n.entry k(\n.param .b64 a\n)\n{\n.reg .f32 %f<9>;\n" +
           body + "\nret;\n}\n";
  };
  CHECK_NOTHROW(ptx::parse(kernel("add.rn.f32 %f1, %f2, %f3;")));
  CHECK_THROWS_WITH(ptx::parse(kernel("fma.rn.f32 %f1, %f2, %f3, %f4;")),
                    "PTX line 8: unknown opcode fma.rn.f32");
  CHECK_THROWS_WITH(ptx::parse(kernel("ld.weak.f32 %f1, [%f2];")),
                    "PTX line 8: unknown opcode ld.weak.f32");
  CHECK_THROWS_WITH(ptx::parse(kernel("add.rn.f32 %f1, %f2, %laneid;")),
                    "PTX line 8: unknown operand %laneid");
  CHECK_THROWS_WITH(ptx::parse(kernel("bra nowhere;")), Catch::Contains("no label nowhere"));
  CHECK_THROWS_WITH(ptx::parse(".global .b32 x;"), Catch::Contains("unknown directive .global"));
}

}  // namespace
