// SPDX-License-Identifier: BSD-3-Clause
#include "pattern.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/reference/format_reference.h"
#include "sim/reference/ring_reference.h"

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

double factor_of(std::uint32_t contributor) noexcept {
  return (contributor % 2 == 0 ? 1.0 : -1.0) / (3.0 + contributor);
}

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

namespace {

/// Makes the reference block by block and counts what differs from it.
class Judge {
 public:
  Judge(const Options& options, std::uint64_t seed)
      : options_(options),
        seed_(seed),
        element_(element_bytes(options.datatype)),
        blocks_(place_of(options).processes, std::vector<std::byte>(kBlock * element_)),
        expected_(kBlock * element_) {
    for (const auto& block : blocks_) inputs_.push_back(block.data());
    factors_.resize(blocks_.size());
  }

  /// Elements [start, end) of the inputs, folded from the members of `first_rank` on.
  std::uint64_t folded(std::uint32_t first_rank, std::uint64_t start, std::uint64_t end,
                       const std::byte* result) {
    return compare(start, end, result, [&](std::uint64_t at, std::uint64_t count) {
      for (std::size_t i = 0; i < blocks_.size(); ++i) {
        const std::size_t who =
            sim::contribution_at(first_rank, i, options_.nranks, options_.members);
        fill_pattern(options_.datatype, options_.redop, static_cast<std::uint32_t>(who), seed_, at,
                     count, blocks_[i].data());
        factors_[i] = factor_of(static_cast<std::uint32_t>(who));
      }
      const bool multiplies = options_.redop == RedOp::kPremulSum;
      sim::fold_in_order(
          options_.datatype, options_.redop, inputs_, options_.members, count, expected_.data(),
          multiplies ? std::span<const double>(factors_) : std::span<const double>{});
    });
  }
  /// Elements [0, count) of one process's input.
  std::uint64_t moved(std::uint32_t process, std::uint64_t count, const std::byte* result) {
    return moved(process, 0, count, result);
  }
  /// Elements [first, first + count) of it.
  std::uint64_t moved(std::uint32_t process, std::uint64_t first, std::uint64_t count,
                      const std::byte* result) {
    return compare(first, first + count, result, [&](std::uint64_t at, std::uint64_t part) {
      fill_pattern(options_.datatype, options_.redop, process, seed_, at, part, expected_.data());
    });
  }

 private:
  static constexpr std::uint64_t kBlock = 4096;

  template <class Make>
  std::uint64_t compare(std::uint64_t start, std::uint64_t end, const std::byte* result,
                        Make make) {
    std::uint64_t wrong = 0;
    for (std::uint64_t at = start; at < end; at += kBlock) {
      const std::uint64_t part = std::min(kBlock, end - at);
      make(at, part);
      const std::byte* got = result + (at - start) * element_;
      if (std::memcmp(got, expected_.data(), part * element_) == 0) continue;
      for (std::uint64_t i = 0; i < part; ++i) {
        wrong += std::memcmp(got + i * element_, &expected_[i * element_], element_) != 0;
      }
    }
    return wrong;
  }

  const Options& options_;
  const std::uint64_t seed_;
  const std::uint32_t element_;
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<const std::byte*> inputs_;
  std::vector<double> factors_;  ///< of each, in its order
  std::vector<std::byte> expected_;
};

/// Of elements that travel in a format: all inputs are made at once, since blocks are encoded.
std::uint64_t count_wrong_sums(const Options& options, std::uint64_t seed, std::uint64_t count,
                               const std::byte* result) {
  const ProcessPlace place = place_of(options);
  sim::CollectiveCall call;
  call.collective = options.collective;
  call.datatype = options.datatype;
  call.redop = options.redop;
  call.count = count;
  call.root = options.root;
  call.width = element_bytes(options.datatype);
  call.nranks = options.nranks;
  call.members = options.members;
  call.wire = options.wire;
  std::vector<std::vector<std::byte>> inputs(place.processes);
  std::vector<const std::byte*> begins;
  for (std::uint32_t process = 0; process < place.processes; ++process) {
    inputs[process].resize(sim::input_bytes(call, process));
    fill_pattern(options.datatype, options.redop, process, seed, 0,
                 inputs[process].size() / call.width, inputs[process].data());
    begins.push_back(inputs[process].data());
  }
  const std::vector<std::byte> results = sim::collective_results(call, begins);
  const std::span<const std::byte> wanted = sim::output_of(call, results, place.process);
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < wanted.size(); at += call.width) {
    wrong += std::memcmp(result + at, wanted.data() + at, call.width) != 0;
  }
  return wrong;
}

}  // namespace

std::uint64_t count_wrong(const Options& options, std::uint64_t seed, std::uint64_t count,
                          const std::byte* result) {
  if (options.wire != WireFormat::kSame) return count_wrong_sums(options, seed, count, result);
  Judge judge(options, seed);
  const ProcessPlace place = place_of(options);
  const std::uint32_t element = element_bytes(options.datatype);
  std::uint64_t wrong = 0;
  switch (options.collective) {
    case Collective::kAllReduce: {
      const std::uint64_t segment = sim::segment_elements(count, options.datatype, options.nranks);
      for (std::uint32_t s = 0; s < options.nranks; ++s) {
        const std::uint64_t start = std::min(count, s * segment);
        wrong += judge.folded(s, start, std::min(count, start + segment), result + start * element);
      }
      return wrong;
    }
    // These end at the rank that gets the result, so the one after it begins.
    case Collective::kReduce:
      return judge.folded(options.root / options.members + 1, 0, count, result);
    case Collective::kReduceScatter:
      return judge.folded(options.rank + 1u, place.process * count, (place.process + 1) * count,
                          result);
    case Collective::kBroadcast:
      return judge.moved(options.root, count, result);
    case Collective::kScatter:
      return judge.moved(options.root, place.process * count, count, result);
    case Collective::kAllToAll:
      for (std::uint32_t process = 0; process < place.processes; ++process) {
        wrong +=
            judge.moved(process, place.process * count, count, result + process * count * element);
      }
      return wrong;
    case Collective::kSend:
    case Collective::kRecv:
      return judge.moved((place.process + place.processes - 1) % place.processes, count, result);
    case Collective::kGather:
    case Collective::kAllGather:
      for (std::uint32_t process = 0; process < place.processes; ++process) {
        wrong += judge.moved(process, count, result + process * count * element);
      }
      return wrong;
    case Collective::kBarrier:
      break;
  }
  return wrong;
}

}  // namespace gradwire::perf
