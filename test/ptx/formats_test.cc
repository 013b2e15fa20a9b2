// SPDX-License-Identifier: BSD-3-Clause
// The kernel of wire formats as nvcc compiled it, on the interpreter: the bits of the reference, no
// access beyond what it was given, no race, and mutants that are caught.
#include <catch2/catch.hpp>
#include <cstdio>
#include <map>

#include "formats/joined_cases.h"
#include "machine.h"
#include "mutate.h"
#include "reduce/gpu/format_append.h"
#include "support/seed.h"
#include "texts.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;
using ptx::MachineOptions;

constexpr std::uint32_t kGrid = 2;  ///< fewer than a large item's tiles

/// Each as a batch of two of it: the second does the same again, so not in place.
class PtxRunner final : public FormatRunner {
 public:
  PtxRunner(const ptx::Module& module, const MachineOptions& options) : machine_(module, options) {}
  [[nodiscard]] const char* name() const override { return "PTX"; }
  [[nodiscard]] bool part(const FormatPart& part) override {
    FormatBatch batch;
    for (const BytesIn& member : part.members) know(member);
    for (const BytesIn array :
         {part.residual_in, BytesIn(part.residual_out), BytesIn(part.wire), BytesIn(part.stored)}) {
      know(array);
    }
    return append(batch, part) && run(batch);
  }
  [[nodiscard]] bool result(const FormatResult& result) override {
    FormatBatch batch;
    for (const BytesIn& part : result.parts) know(part);
    for (const BytesIn array : {result.sum, BytesIn(result.wire), BytesIn(result.stored)}) {
      know(array);
    }
    return append(batch, result) && run(batch);
  }
  [[nodiscard]] bool decode(WireFormat format, DataType type, BytesIn wire,
                            BytesOut values) override {
    FormatBatch batch;
    know(wire);
    know(values);
    return append_decoding(batch, format, type, wire, values) && run(batch);
  }
  /// Several at once: @return whether the kernel ran.
  [[nodiscard]] bool run(const FormatBatch& batch) {
    fault_.clear();
    try {
      machine_.run(machine_.module().function("format_kernel"), std::as_bytes(std::span(&batch, 1)),
                   std::min(batch.tile_count, kGrid), kThreadsPerBlock);
    } catch (const ptx::Fault& fault) {
      fault_ = fault.what();
    }
    for (const auto& [address, bytes] : known_) machine_.memory.remove(address);
    known_.clear();
    return fault_.empty();
  }
  void know(BytesIn array) {
    if (array.empty()) return;
    known_[array.data()] = array.size();
    machine_.memory.add(array.data(), array.size());
  }
  [[nodiscard]] const std::string& fault() const { return fault_; }
  [[nodiscard]] ptx::Machine& machine() { return machine_; }

 private:
  ptx::Machine machine_;
  std::map<const std::byte*, std::size_t> known_;
  std::string fault_;
};

TEST_CASE("the compiled kernel of wire formats gives the codec's bits") {
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  for (const char* architecture : ptx::kArchitectures) {
    INFO(architecture);
    std::mt19937_64 random(seed);
    const ptx::Module module = ptx::parse(ptx::text_of(architecture));
    PtxRunner in_order(module, {});
    check_parts(in_order, 3, random);
    check_results(in_order, 3, random);
    check_decodings(in_order, random);
    PtxRunner shuffled(module, {.seed = 5, .turn = 50, .late_stores = true, .finds_races = true});
    check_parts(shuffled, 17, random);
    check_results(shuffled, 17, random);
    CHECK(shuffled.machine().instructions() > 100'000);
  }
}

TEST_CASE("items of one batch of wire formats do not disturb each other") {
  std::mt19937_64 random(test_seed());
  const ptx::Module module = ptx::parse(ptx::text_of("sm_90"));
  PtxRunner runner(module, {.seed = 2, .turn = 100, .finds_races = true});
  FormatBatch batch;
  std::vector<Bytes> inputs;
  std::vector<Placed> wires;
  for (const std::size_t count : {1u, 1025u, 256u, 3000u, 7u}) {
    inputs.push_back(stored_as(DataType::kFloat32, draw_values(count, random)));
    wires.emplace_back(wire_bytes(WireFormat::kInt8, DataType::kFloat32, count), count % 32);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const BytesIn member = inputs[i];
    FormatPart part;
    part.format = WireFormat::kInt8;
    part.members = {&member, 1};
    part.wire = wires[i].bytes();
    runner.know(member);
    runner.know(part.wire);
    REQUIRE(append(batch, part));
  }
  REQUIRE(runner.run(batch));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Bytes wanted =
        test::encode(WireFormat::kInt8, loaded_from(DataType::kFloat32, inputs[i]));
    CHECK(difference(wires[i].content(), wanted) == "");
    CHECK(wires[i].is_framed());
  }
}

/// In sm_90's text; remade PTX may move them.
constexpr ptx::Mutant kFormatMutants[] = {
    {"a largest of half a warp", "format_kernel", "shfl.sync.bfly.b32", 0, nullptr},
    {"a largest of one lane", "format_kernel", "shfl.sync.bfly.b32", 4, "shfl.sync.idx.b32"},
    {"a least of two lanes", "format_kernel", "max.u32", 8, "min.u32"},
    {"a scale that is a product", "format_kernel", "div.rn.f32", 8, "mul.rn.f32"},
    {"no inverse of the scale", "format_kernel", "rcp.rn.f32", 0, "abs.f32"},
    {"an average of nothing", "format_kernel", "div.rn.f32", 0, "mul.rn.f32"},
    {"a member that is taken off", "format_kernel", "add.rn.f32", 0, "sub.rn.f32"},
    {"a part that is taken off", "format_kernel", "add.rn.f32", 16, "sub.rn.f32"},
    {"a residual of the wrong sign", "format_kernel", "sub.rn.f32", 0, "add.rn.f32"},
    {"a scale that is not clamped below", "format_kernel", "setp.lt.f32", 0, "setp.gt.f32"},
    {"a scale that is not clamped above", "format_kernel", "setp.gt.f32", 0, "setp.lt.f32"},
    {"an element beyond the last", "format_kernel", "setp.ge.u32", 1, "setp.gt.u32"},
};

/// A part of two members with residuals, in and out of every format, at counts that end in a block.
bool is_part_wrong(PtxRunner& runner, WireFormat format, DataType type, std::mt19937_64& random) {
  for (const std::size_t count : {259u, 1281u}) {
    const Floats residual = draw_values(count, random);
    std::vector<Bytes> arrays;
    Floats x(count);
    for (int m = 0; m < 2; ++m) {
      arrays.push_back(stored_as(type, draw_values(count, random)));
      const Floats wide = loaded_from(type, arrays.back());
      for (std::size_t i = 0; i < count; ++i) x[i] = m == 0 ? wide[i] : x[i] + wide[i];
    }
    for (std::size_t i = 0; i < count; ++i) x[i] += residual[i];
    const Bytes wanted = test::encode(format, x);
    Floats lost = test::decode(format, wanted, count);
    const Bytes decoded = stored_as(type, lost);
    for (std::size_t i = 0; i < count; ++i) lost[i] = test::residual(x[i], lost[i]);
    const Bytes before = stored_as(DataType::kFloat32, residual);
    Bytes wire(wanted.size()), stored(decoded.size()), after(before.size());
    const std::array<BytesIn, 2> members = {arrays[0], arrays[1]};
    if (!runner.part({format, type, members, before, after, wire, stored}) || wire != wanted ||
        stored != decoded || after != stored_as(DataType::kFloat32, lost)) {
      return true;
    }
  }
  return false;
}

bool is_sum_wrong(PtxRunner& runner, WireFormat format, DataType type, std::mt19937_64& random) {
  const std::size_t count = 700;
  const Bytes wire = test::encode(format, draw_values(count, random));
  Bytes stored(count * element_bytes(type));
  const std::array<BytesIn, 2> parts = {wire, wire};
  Floats sums = test::decode(format, wire, count);
  for (float& sum : sums) sum = canonical((sum + sum) / 3.0f);
  return !runner.result({format, type, count, {}, parts, 3, {}, stored}) ||
         stored != stored_as(type, sums);
}

/// @return whether any bit is wrong, or the kernel faults.
bool is_caught(const std::string& text) {
  const ptx::Module module = ptx::parse(text);
  std::mt19937_64 random(1);
  PtxRunner runner(module, {});
  for (int round = 0; round < 8; ++round) {
    for (const auto& [format, type] : kTravels) {
      if (is_part_wrong(runner, format, type, random)) return true;
      if (is_sum_wrong(runner, format, type, random)) return true;
    }
  }
  return false;
}

TEST_CASE("every mutant of the kernel of wire formats is caught", "[mutants]") {
  const std::string text = ptx::text_of("sm_90");
  REQUIRE_FALSE(is_caught(text));
  for (const ptx::Mutant& mutant : kFormatMutants) {
    INFO(mutant.what);
    const std::string changed = ptx::mutated(text, mutant);
    CHECK(changed != text);
    CHECK(is_caught(changed));
  }
}

}  // namespace
