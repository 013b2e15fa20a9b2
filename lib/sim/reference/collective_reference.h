// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What each collective must give each process, bit for bit, written apart from lib/reduce and
/// lib/collective so that it can judge them. The order of a fold is that of doc/architecture.md
/// (Collectives). Any thread; slow next to the real thing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "base/wire_format.h"

namespace gradwire::sim {

struct CollectiveCall {
  Collective collective = Collective::kAllReduce;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  std::uint64_t count = 0;  ///< as collective::OpSpec counts
  std::uint32_t root = UINT32_MAX;
  std::uint32_t width = 4;  ///< bytes of an element
  std::uint32_t nranks = 1;
  std::uint32_t members = 1;
  std::span<const std::uint16_t> ranks{};  ///< [processes] of each; empty: process / members
  std::span<const double> factors{};       ///< [processes] of a premul-sum
  WireFormat wire = WireFormat::kSame;     ///< how elements travel, if there are several ranks
  /// [nranks] of an op with a format, [elements of an input] each: what is added to what the rank
  /// gives. Empty: nothing is.
  std::span<const std::vector<float>> residuals{};

  [[nodiscard]] std::uint32_t processes() const noexcept {
    return ranks.empty() ? nranks * members : static_cast<std::uint32_t>(ranks.size());
  }
  [[nodiscard]] std::uint32_t rank_of(std::uint32_t process) const noexcept {
    return ranks.empty() ? process / members : ranks[process];
  }
};

/// Bytes of a process's input, and of its output; 0 if it has none.
[[nodiscard]] std::uint64_t input_bytes(const CollectiveCall& call, std::uint32_t process) noexcept;
[[nodiscard]] std::uint64_t output_bytes(const CollectiveCall& call,
                                         std::uint32_t process) noexcept;

/// What the processes get, one after the other or all of them: see output_of().
/// @param inputs  [processes], in order of their numbers; each has input_bytes().
[[nodiscard]] std::vector<std::byte> collective_results(const CollectiveCall& call,
                                                        std::span<const std::byte* const> inputs);
/// A process's output in collective_results().
[[nodiscard]] std::span<const std::byte> output_of(const CollectiveCall& call,
                                                   const std::vector<std::byte>& results,
                                                   std::uint32_t process) noexcept;

}  // namespace gradwire::sim
