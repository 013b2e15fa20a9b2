// SPDX-License-Identifier: BSD-3-Clause
#include "pattern.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "sim/reference/ring_reference.h"

using namespace gradwire;
using namespace gradwire::perf;

TEST_CASE("a pattern is the same from wherever it is begun, and another for each seed and rank") {
  std::vector<float> all(1000), part(10), other(1000);
  const auto fill = [](std::vector<float>& out, std::uint32_t who, std::uint64_t seed,
                       std::uint64_t start) {
    fill_pattern(DataType::kFloat32, RedOp::kSum, who, seed, start, out.size(),
                 reinterpret_cast<std::byte*>(out.data()));
  };
  fill(all, 1, 5, 0);
  fill(part, 1, 5, 990);
  CHECK(std::equal(part.begin(), part.end(), all.begin() + 990));
  for (const auto& [who, seed] : {std::pair(2u, 5u), std::pair(1u, 6u)}) {
    fill(other, who, seed, 0);
    std::size_t same = 0;
    for (std::size_t i = 0; i < all.size(); ++i) same += all[i] == other[i];
    CHECK(same < 5);
  }
  for (const float value : all) REQUIRE((value > -1.0f && value < 1.0f));
}

TEST_CASE("right results have no wrong element, and each wrong bit is one") {
  Options options;
  options.nranks = 3;
  options.members = 2;
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int redop = 0; redop < kRedOpCount; ++redop) {
      options.datatype = static_cast<DataType>(type);
      options.redop = static_cast<RedOp>(redop);
      const std::uint64_t count = 20001;
      const std::uint32_t element = element_bytes(options.datatype);
      std::vector<std::vector<std::byte>> inputs(6, std::vector<std::byte>(count * element));
      std::vector<const std::byte*> pointers;
      for (std::uint32_t i = 0; i < 6; ++i) {
        fill_pattern(options.datatype, options.redop, i, 9, 0, count, inputs[i].data());
        pointers.push_back(inputs[i].data());
      }
      std::vector<std::byte> result(count * element);
      std::vector<double> factors;
      for (std::uint32_t i = 0; options.redop == RedOp::kPremulSum && i < 6; ++i) {
        factors.push_back(factor_of(i));
      }
      if (options.redop == RedOp::kPremulSum && !is_float(options.datatype)) continue;
      sim::ring_all_reduce(options.datatype, options.redop, pointers, 3, 2, count, result.data(),
                           factors);
      REQUIRE(count_wrong(options, 9, count, result.data()) == 0);
      for (const std::size_t at : {0u, 7777u, 20000u}) result[at * element] ^= std::byte{1};
      CHECK(count_wrong(options, 9, count, result.data()) == 3);
    }
  }
}

TEST_CASE("each collective is judged by what its process is to get") {
  // Integers, so that a plain sum is right; process 3 is member 1 of rank 1 of 3.
  Options options;
  options.nranks = 3;
  options.members = 2;
  options.rank = 1;
  options.member = 1;
  options.root = 3;
  options.datatype = DataType::kInt32;
  constexpr std::uint64_t kCount = 5001;
  std::vector<std::vector<std::uint32_t>> inputs(6, std::vector<std::uint32_t>(6 * kCount));
  for (std::uint32_t i = 0; i < 6; ++i) {
    fill_pattern(options.datatype, options.redop, i, 9, 0, 6 * kCount,
                 reinterpret_cast<std::byte*>(inputs[i].data()));
  }
  std::vector<std::uint32_t> sum(6 * kCount);
  for (const auto& input : inputs) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += input[i];
  }
  std::vector<std::uint32_t> all;
  for (const auto& input : inputs) all.insert(all.end(), input.begin(), input.begin() + kCount);
  const auto judge = [&](Collective collective, std::vector<std::uint32_t> result) {
    INFO(name_of(collective));
    options.collective = collective;
    const auto wrong = [&] {
      return count_wrong(options, 9, kCount, reinterpret_cast<const std::byte*>(result.data()));
    };
    CHECK(wrong() == 0);
    for (const std::size_t at : {std::size_t{0}, result.size() / 2, result.size() - 1}) {
      result[at] ^= 1;
    }
    CHECK(wrong() == 3);
  };
  judge(Collective::kAllReduce, {sum.begin(), sum.begin() + kCount});
  judge(Collective::kReduce, {sum.begin(), sum.begin() + kCount});
  judge(Collective::kReduceScatter, {sum.begin() + 3 * kCount, sum.begin() + 4 * kCount});
  judge(Collective::kBroadcast, {inputs[3].begin(), inputs[3].begin() + kCount});
  judge(Collective::kAllGather, all);
}

TEST_CASE("another order of summation is seen") {
  // What the check is for: a plain sum in rank order is not what the ring gives.
  Options options;
  options.nranks = 4;
  const std::uint64_t count = 4096;
  std::vector<float> sum(count), input(count);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    fill_pattern(DataType::kFloat32, RedOp::kSum, rank, 1, 0, count,
                 reinterpret_cast<std::byte*>(input.data()));
    for (std::size_t i = 0; i < count; ++i) sum[i] += input[i];
  }
  const auto wrong = count_wrong(options, 1, count, reinterpret_cast<const std::byte*>(sum.data()));
  CHECK(wrong > 100);
}
