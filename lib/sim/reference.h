// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One all-reduce of every rank and member: inputs made from a seed, the result that they must give
/// (sim/ring_reference.h), and the clients' memory, with guards, so that it is seen when somebody
/// writes where or when he must not. One thread; the constructor allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collective/shard.h"

namespace gradwire::sim {

struct OpPlan {
  std::uint64_t count = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  bool in_place = false;
  std::uint32_t tag = 99;
  std::uint64_t seed = 1;
};

class AllReduceCase {
 public:
  AllReduceCase(std::uint16_t nranks, std::uint16_t members, const OpPlan& plan);

  [[nodiscard]] collective::OpSpec spec(std::uint16_t rank, std::uint64_t op_seq);
  [[nodiscard]] const OpPlan& plan() const { return plan_; }
  /// Empty if the outputs of the rank's members are right to the bit; else where they are not.
  [[nodiscard]] std::string wrong(std::uint16_t rank) const;
  /// The rank's op ended and its clients use the memory for something else.
  void retire(std::uint16_t rank);
  /// After retire(): empty, or which byte of the clients' memory was changed since.
  [[nodiscard]] std::string touched(std::uint16_t rank) const;

 private:
  struct Buffers {
    std::vector<std::byte> input;
    std::vector<std::byte> output;  ///< with a guard before and behind
  };
  [[nodiscard]] Buffers& at(std::uint16_t rank, std::uint16_t member) {
    return buffers_[std::size_t{rank} * members_ + member];
  }
  [[nodiscard]] const Buffers& at(std::uint16_t rank, std::uint16_t member) const {
    return buffers_[std::size_t{rank} * members_ + member];
  }
  void compute_expected();

  std::uint16_t nranks_;
  std::uint16_t members_;
  OpPlan plan_;
  std::vector<Buffers> buffers_;  ///< [rank x members + member]
  std::vector<std::byte> expected_;
};

}  // namespace gradwire::sim
