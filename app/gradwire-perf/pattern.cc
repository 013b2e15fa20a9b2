// SPDX-License-Identifier: BSD-3-Clause
#include "pattern.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/ring_reference.h"

namespace gradwire::perf {
namespace {

/// splitmix64: a good mixer of consecutive numbers.
std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double real_of(std::uint64_t bits, RedOp redop) noexcept {
  const double unit = static_cast<double>(bits >> 11) * 0x1p-53;  // [0, 1)
  return redop == RedOp::kProd ? 0.5 + unit : 2.0 * unit - 1.0;
}

template <class Make>
void fill(std::uint64_t key, std::uint64_t start, std::uint64_t count, std::byte* output,
          Make make) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto value = make(mix(key + start + i));
    std::memcpy(output + i * sizeof(value), &value, sizeof(value));
  }
}

}  // namespace

void fill_pattern(DataType type, RedOp redop, std::uint32_t contributor, std::uint64_t seed,
                  std::uint64_t start, std::uint64_t count, std::byte* output) {
  const std::uint64_t key = mix(mix(seed) + contributor);
  switch (type) {
    case DataType::kFloat32:
      return fill(key, start, count, output,
                  [=](std::uint64_t bits) { return static_cast<float>(real_of(bits, redop)); });
    case DataType::kFloat64:
      return fill(key, start, count, output,
                  [=](std::uint64_t bits) { return real_of(bits, redop); });
    case DataType::kFloat16:
      return fill(key, start, count, output, [=](std::uint64_t bits) {
        return sim::float_to_half(static_cast<float>(real_of(bits, redop)));
      });
    case DataType::kBfloat16:
      return fill(key, start, count, output, [=](std::uint64_t bits) {
        return sim::float_to_bfloat(static_cast<float>(real_of(bits, redop)));
      });
    case DataType::kInt8:
    case DataType::kUint8:
      return fill(key, start, count, output,
                  [](std::uint64_t bits) { return static_cast<std::uint8_t>(bits); });
    case DataType::kInt32:
      return fill(key, start, count, output,
                  [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits); });
    case DataType::kInt64:
      return fill(key, start, count, output, [](std::uint64_t bits) { return bits; });
    case DataType::kBytes:
      break;
  }
}

std::uint64_t count_wrong(const Options& options, std::uint64_t seed, std::uint64_t count,
                          const std::byte* result) {
  constexpr std::uint64_t kBlock = 4096;
  const std::uint32_t element = element_bytes(options.datatype);
  const std::size_t contributions = std::size_t{options.nranks} * options.members;
  std::vector<std::vector<std::byte>> blocks(contributions,
                                             std::vector<std::byte>(kBlock * element));
  std::vector<const std::byte*> inputs(contributions);
  for (std::size_t i = 0; i < contributions; ++i) inputs[i] = blocks[i].data();
  std::vector<std::byte> expected(kBlock * element);

  std::uint64_t wrong = 0;
  const std::uint64_t segment = sim::segment_elements(count, options.datatype, options.nranks);
  for (std::uint32_t s = 0; s < options.nranks; ++s) {
    const std::uint64_t end = std::min(count, (s + 1) * segment);
    for (std::uint64_t start = s * segment; start < end; start += kBlock) {
      const std::uint64_t part = std::min(kBlock, end - start);
      for (std::size_t at = 0; at < contributions; ++at) {
        const std::size_t who = sim::contribution_at(s, at, options.nranks, options.members);
        fill_pattern(options.datatype, options.redop, static_cast<std::uint32_t>(who), seed, start,
                     part, blocks[at].data());
      }
      sim::fold_in_order(options.datatype, options.redop, inputs, options.members, part,
                         expected.data());
      const std::byte* got = result + start * element;
      if (std::memcmp(got, expected.data(), part * element) == 0) continue;
      for (std::uint64_t i = 0; i < part; ++i) {
        wrong += std::memcmp(got + i * element, &expected[i * element], element) != 0;
      }
    }
  }
  return wrong;
}

}  // namespace gradwire::perf
