// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/cpu_kernels.h"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "reduce/scalar_ops.h"
#include "reference.h"
#include "support/seed.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;

using Bytes = std::vector<std::byte>;

std::vector<double> factors_of(RedOp redop, std::size_t count) {
  constexpr std::array kFactors = {0.3333333333333333, -1.75, 1.0, 70000.1, -0.0};
  std::vector<double> factors;
  for (std::size_t i = 0; redop == RedOp::kPremulSum && i < count; ++i) {
    factors.push_back(kFactors[i % kFactors.size()]);
  }
  return factors;
}

Bytes fold(const Kernels& kernels, DataType type, RedOp redop, const std::vector<Bytes>& sources,
           std::uint32_t divisor) {
  Bytes result(sources[0].size());
  std::vector<const std::byte*> source_pointers;
  for (const Bytes& source : sources) {
    source_pointers.push_back(source.data());
  }
  std::byte* target = result.data();
  Fold work;
  work.sources = source_pointers.data();
  work.targets = &target;
  work.source_count = sources.size();
  work.target_count = 1;
  work.count = result.size() / element_bytes(type);
  work.divisor = divisor;
  const std::vector<double> factors = factors_of(redop, sources.size());
  work.factors = factors.data();
  work.factor_count = factors.size();
  kernels.fold[static_cast<std::size_t>(type)][static_cast<std::size_t>(redop)](work);
  return result;
}

/// Every 16-bit pattern, first as it is and then joined with each of some partners.
void check_all_patterns(DataType type) {
  const std::array<std::uint16_t, 14> partners = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff,
                                                  0x0400, 0x3c00, 0xbc01, 0x4c00, 0x7bff,
                                                  0x7c00, 0xfc00, 0x7d55, 0x3f80};
  Bytes patterns(65536 * 2);
  for (std::size_t i = 0; i < 65536; ++i) {
    test::store_element(patterns.data(), i, 2, i);
  }
  for (const std::uint16_t partner : partners) {
    Bytes other(patterns.size());
    for (std::size_t i = 0; i < 65536; ++i) {
      test::store_element(other.data(), i, 2, partner);
    }
    for (const RedOp redop : kRedOps) {
      if (!fits(redop, type)) continue;
      const std::uint32_t divisor = redop == RedOp::kAvg ? 3 : 1;
      const Bytes scalar = fold(scalar_kernels(), type, redop, {patterns, other}, divisor);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < 65536; ++i) {
        const std::array<std::uint64_t, 2> values = {i, partner};
        const bool equal =
            test::load_element(scalar.data(), i, 2) ==
            test::expected_fold(type, redop, values, divisor, factors_of(redop, values.size()));
        wrong += equal ? 0 : 1;
      }
      INFO(name_of(type) << " " << name_of(redop) << " with pattern " << partner);
      CHECK(wrong == 0);
      if (avx2_kernels() != nullptr) {
        CHECK(fold(*avx2_kernels(), type, redop, {patterns, other}, divisor) == scalar);
      }
    }
  }
}

TEST_CASE("every fp16 and bf16 value folds to the reference's bits, on both instruction sets") {
  check_all_patterns(DataType::kFloat16);
  check_all_patterns(DataType::kBfloat16);
}

TEST_CASE("AVX2 gives the scalar bits on random bits") {
  if (avx2_kernels() == nullptr) {
    WARN("this CPU has no AVX2: nothing compared");
    return;
  }
  const std::uint64_t seed = test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int type_value = 0; type_value < kDataTypeCount; ++type_value) {
    const auto type = static_cast<DataType>(type_value);
    for (const RedOp redop : kRedOps) {
      if (!fits(redop, type)) continue;
      for (const std::size_t source_count : {1u, 2u, 5u}) {
        std::vector<Bytes> sources(source_count, Bytes(20011 * element_bytes(type)));
        for (Bytes& source : sources) {
          for (std::size_t i = 0; i < 20011; ++i) {
            test::store_element(source.data(), i, element_bytes(type),
                                i % 2 == 0 ? random() : test::awkward_element(type, random));
          }
        }
        const auto divisor = static_cast<std::uint32_t>(1 + random() % kMaxProcesses);
        INFO(name_of(type) << " " << name_of(redop) << " sources " << source_count << " divisor "
                           << divisor);
        CHECK(fold(*avx2_kernels(), type, redop, sources, divisor) ==
              fold(scalar_kernels(), type, redop, sources, divisor));
      }
    }
  }
}

TEST_CASE("fp16 and bf16 convert to fp32 and back without a change") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const bool half_is_nan = (bits & 0x7fff) > 0x7c00;
    const bool bfloat_is_nan = (bits & 0x7fff) > 0x7f80;
    if (float_to_half(half_to_float(pattern)) != (half_is_nan ? 0x7e00 : pattern) ||
        float_to_bfloat(bfloat_to_float(pattern)) != (bfloat_is_nan ? 0x7fc0 : pattern)) {
      FAIL("pattern " << bits);
    }
  }
  SUCCEED();
}

TEST_CASE("fp32 rounds to fp16 and bf16 to nearest even") {
  // The edge of fp16's range: 65519 is nearer to 65504, 65520 is the tie and goes to infinity.
  CHECK(float_to_half(65504.0f) == 0x7bff);
  CHECK(float_to_half(65519.0f) == 0x7bff);
  CHECK(float_to_half(std::nextafter(65520.0f, 0.0f)) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(-65520.0f) == 0xfc00);
  CHECK(float_to_half(0x1p-25f) == 0x0000);  // A tie between 0 and the least denormal.
  CHECK(float_to_half(0x1.8p-24f) == 0x0002);
  CHECK(float_to_half(std::nextafter(0x1p-25f, 1.0f)) == 0x0001);
  CHECK(float_to_bfloat(std::bit_cast<float>(0x3f808000u)) == 0x3f80);
  CHECK(float_to_bfloat(std::bit_cast<float>(0x3f818000u)) == 0x3f82);
  CHECK(float_to_bfloat(std::bit_cast<float>(0x7f7fffffu)) == 0x7f80);
  CHECK(float_to_bfloat(std::bit_cast<float>(0x00008001u)) == 0x0001);
  // Every exponent, and mantissas about every tie of both formats and between.
  std::mt19937_64 random(1);
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low :
         {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u, 0x8001u,
          0xffffu, static_cast<std::uint32_t>(random() & 0xffff)}) {
      const auto value = std::bit_cast<float>(high << 16 | low);
      if (!std::isnan(value) && (float_to_half(value) != test::round_to_half(value) ||
                                 float_to_bfloat(value) != test::round_to_bfloat(value))) {
        FAIL("bits " << (high << 16 | low));
      }
    }
  }
}

}  // namespace
