// SPDX-License-Identifier: BSD-3-Clause
#include "sim/reference/collective_reference.h"

#include <algorithm>
#include <cstring>

#include "sim/reference/format_reference.h"
#include "sim/reference/ring_reference.h"

namespace gradwire::sim {
namespace {

/// The sum that begins at `first_rank`.
void fold_from(const CollectiveCall& call, std::span<const std::byte* const> inputs,
               std::uint32_t first_rank, std::uint64_t first_byte, std::uint64_t count,
               std::byte* output) {
  std::vector<const std::byte*> ordered;
  std::vector<double> factors;
  std::vector<std::uint32_t> members(call.nranks);
  for (std::uint32_t at = 0; at < call.nranks; ++at) {
    for (std::uint32_t process = 0; process < call.processes(); ++process) {
      if (call.rank_of(process) != (first_rank + at) % call.nranks) continue;
      ordered.push_back(inputs[process] + first_byte);
      if (!call.factors.empty()) factors.push_back(call.factors[process]);
      ++members[at];
    }
  }
  fold_in_order(call.datatype, call.redop, ordered, members, count, output, factors);
}

/// The sum that ends at a process's rank: it begins at the rank after that one.
void fold_towards(const CollectiveCall& call, std::span<const std::byte* const> inputs,
                  std::uint32_t process, std::uint64_t first_byte, std::byte* output) {
  fold_from(call, inputs, (call.rank_of(process) + 1) % call.nranks, first_byte, call.count,
            output);
}

/// An all-reduce of ranks that differ in size or whose processes are numbered in another order.
void all_reduce(const CollectiveCall& call, std::span<const std::byte* const> inputs,
                std::byte* output) {
  const std::uint64_t segment = segment_elements(call.count, call.datatype, call.nranks);
  for (std::uint32_t rank = 0; rank < call.nranks && rank * segment < call.count; ++rank) {
    const std::uint64_t first = rank * segment;
    fold_from(call, inputs, rank, first * call.width, std::min(segment, call.count - first),
              output + first * call.width);
  }
}

}  // namespace

std::uint64_t input_bytes(const CollectiveCall& call, std::uint32_t process) noexcept {
  const std::uint64_t block = call.count * call.width;
  switch (call.collective) {
    case Collective::kReduceScatter:
      return block * call.processes();
    case Collective::kBroadcast:
      return process == call.root ? block : 0;
    case Collective::kBarrier:
      return 0;
    default:
      break;
  }
  return block;
}

std::uint64_t output_bytes(const CollectiveCall& call, std::uint32_t process) noexcept {
  const std::uint64_t block = call.count * call.width;
  switch (call.collective) {
    case Collective::kAllGather:
      return block * call.processes();
    case Collective::kReduce:
      return process == call.root ? block : 0;
    case Collective::kBarrier:
      return 0;
    default:
      break;
  }
  return block;
}

std::vector<std::byte> collective_results(const CollectiveCall& call,
                                          std::span<const std::byte* const> inputs) {
  const std::uint64_t block = call.count * call.width;
  std::vector<std::byte> results;
  if (block == 0) return results;
  if (call.wire != WireFormat::kSame && call.nranks > 1) return format_results(call, inputs);
  switch (call.collective) {
    case Collective::kAllReduce:
      results.resize(block);
      if (!call.ranks.empty()) {
        all_reduce(call, inputs, results.data());
        break;
      }
      ring_all_reduce(call.datatype, call.redop, inputs, call.nranks, call.members, call.count,
                      results.data(), call.factors);
      break;
    case Collective::kReduce:
      results.resize(block);
      fold_towards(call, inputs, call.root, 0, results.data());
      break;
    case Collective::kReduceScatter:
      results.resize(block * call.processes());
      for (std::uint32_t process = 0; process < call.processes(); ++process) {
        fold_towards(call, inputs, process, process * block, results.data() + process * block);
      }
      break;
    case Collective::kBroadcast:
      results.assign(inputs[call.root], inputs[call.root] + block);
      break;
    case Collective::kAllGather:
      for (const std::byte* input : inputs) results.insert(results.end(), input, input + block);
      break;
    default:
      break;
  }
  return results;
}

std::span<const std::byte> output_of(const CollectiveCall& call,
                                     const std::vector<std::byte>& results,
                                     std::uint32_t process) noexcept {
  const std::uint64_t bytes = output_bytes(call, process);
  const bool own_part = call.collective == Collective::kReduceScatter;
  return std::span(results).subspan(own_part ? process * bytes : 0, bytes);
}

}  // namespace gradwire::sim
