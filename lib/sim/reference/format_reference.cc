// SPDX-License-Identifier: BSD-3-Clause
#include "sim/reference/format_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "sim/reference/ring_reference.h"

namespace gradwire::sim {
namespace {

constexpr std::size_t kBlock = 256;
constexpr std::uint32_t kInfinityBits = 0x7f800000;

float nan() noexcept { return std::bit_cast<float>(0x7fc00000u); }

void round_trip_bf16(std::span<float> values) {
  for (float& value : values) {
    value = std::isnan(value) ? nan() : bfloat_to_float(float_to_bfloat(value));
  }
}

void round_trip_block(std::span<float> block) {
  std::uint32_t absmax = 0;
  for (const float value : block) {
    absmax = std::max(absmax, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  }
  if (absmax >= kInfinityBits) {
    std::ranges::fill(block, nan());
    return;
  }
  const double exact = static_cast<double>(std::bit_cast<float>(absmax)) / 127;
  const float largest = std::bit_cast<float>(0x7c010203u);
  const float scale = std::min(std::max(static_cast<float>(exact), 0x1p-126f), largest);
  const auto inverse = static_cast<float>(1 / static_cast<double>(scale));
  for (float& value : block) {
    const auto product =
        static_cast<float>(static_cast<double>(value) * static_cast<double>(inverse));
    // An integer, so that a q of -0 is 0.
    const auto q = static_cast<int>(std::nearbyint(product));
    value = static_cast<float>(q * static_cast<double>(scale));
  }
}

/// An op's memory and sums. A part is what one process's block has, or all of the op.
class Sums {
 public:
  Sums(const CollectiveCall& call, std::span<const std::byte* const> inputs)
      : call_(call), inputs_(inputs) {}

  /// What ranks give to elements [first, first + count) of each input, before it is encoded: by
  /// rank.
  [[nodiscard]] std::vector<std::vector<float>> given(std::uint64_t first) const {
    std::vector<std::vector<float>> parts(call_.nranks);
    for (std::uint32_t process = 0; process < call_.processes(); ++process) {
      std::vector<float>& part = parts[call_.rank_of(process)];
      const bool begins = part.empty();
      part.resize(call_.count);
      for (std::uint64_t i = 0; i < call_.count; ++i) {
        const float value = input(process, first + i);
        part[i] = begins ? value : part[i] + value;
      }
    }
    for (std::size_t rank = 0; rank < call_.residuals.size(); ++rank) {
      for (std::uint64_t i = 0; i < call_.count; ++i) {
        parts[rank][i] += call_.residuals[rank][first + i];
      }
    }
    return parts;
  }
  /// The same, encoded and decoded. Blocks are counted from `first`.
  [[nodiscard]] std::vector<std::vector<float>> parts(std::uint64_t first) const {
    auto parts = given(first);
    for (auto& part : parts) round_trip(call_.wire, part);
    return parts;
  }
  /// Elements [first, end) of the sum that begins at a rank.
  void add_up(const std::vector<std::vector<float>>& parts, std::uint32_t first_rank,
              std::uint64_t first, std::uint64_t end, std::vector<float>& sums) const {
    for (std::uint64_t i = first; i < end; ++i) {
      float sum = parts[first_rank][i];
      for (std::uint32_t ahead = 1; ahead < call_.nranks; ++ahead) {
        sum += parts[(first_rank + ahead) % call_.nranks][i];
      }
      if (call_.redop == RedOp::kAvg) sum /= static_cast<float>(call_.processes());
      sums[i] = std::isnan(sum) ? nan() : sum;
    }
  }
  void store(const std::vector<float>& sums, std::byte* output) const {
    for (const float sum : sums) {
      if (call_.datatype == DataType::kFloat32) {
        std::memcpy(output, &sum, sizeof sum);
      } else {
        const std::uint16_t bits = std::isnan(sum) ? std::uint16_t{0x7fc0} : float_to_bfloat(sum);
        std::memcpy(output, &bits, sizeof bits);
      }
      output += call_.width;
    }
  }

 private:
  [[nodiscard]] float input(std::uint32_t process, std::uint64_t element) const {
    const std::byte* const at = inputs_[process] + element * call_.width;
    if (call_.datatype == DataType::kFloat32) {
      float value = 0;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return bfloat_to_float(bits);
  }

  const CollectiveCall& call_;
  std::span<const std::byte* const> inputs_;
};

}  // namespace

void round_trip(WireFormat format, std::span<float> values) {
  if (format == WireFormat::kBf16) return round_trip_bf16(values);
  for (std::size_t first = 0; first < values.size(); first += kBlock) {
    round_trip_block(values.subspan(first, std::min(kBlock, values.size() - first)));
  }
}

std::vector<std::byte> format_results(const CollectiveCall& call,
                                      std::span<const std::byte* const> inputs) {
  const Sums of(call, inputs);
  const std::uint64_t block = call.count * call.width;
  std::vector<float> sums(call.count);
  if (call.collective == Collective::kReduceScatter) {
    std::vector<std::byte> results(block * call.processes());
    for (std::uint32_t process = 0; process < call.processes(); ++process) {
      const std::uint32_t first_rank = (call.rank_of(process) + 1) % call.nranks;
      of.add_up(of.parts(process * call.count), first_rank, 0, call.count, sums);
      of.store(sums, results.data() + process * block);
    }
    return results;
  }
  std::vector<std::byte> results(block);
  const auto parts = of.parts(0);
  if (call.collective == Collective::kReduce) {
    of.add_up(parts, (call.rank_of(call.root) + 1) % call.nranks, 0, call.count, sums);
  } else {
    const std::uint64_t segment = segment_elements(call.count, call.datatype, call.nranks);
    for (std::uint32_t rank = 0; rank * segment < call.count; ++rank) {
      const std::uint64_t first = rank * segment;
      of.add_up(parts, rank, first, std::min(first + segment, call.count), sums);
    }
    round_trip(call.wire, sums);
  }
  of.store(sums, results.data());
  return results;
}

std::vector<std::vector<float>> format_losses(const CollectiveCall& call,
                                              std::span<const std::byte* const> inputs) {
  const Sums of(call, inputs);
  const bool has_blocks = call.collective == Collective::kReduceScatter;
  std::vector<std::vector<float>> losses(call.nranks);
  for (std::uint32_t block = 0; block < (has_blocks ? call.processes() : 1); ++block) {
    const auto given = of.given(block * call.count);
    const auto parts = of.parts(block * call.count);
    for (std::uint32_t rank = 0; rank < call.nranks; ++rank) {
      for (std::uint64_t i = 0; i < call.count; ++i) {
        const float lost = given[rank][i] - parts[rank][i];
        losses[rank].push_back(std::isfinite(lost) ? lost : 0);
      }
    }
  }
  return losses;
}

}  // namespace gradwire::sim
