// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One op of every rank and member: inputs made from a seed, the result that they must give
/// (sim/reference/collective_reference.h), and the clients' memory, with guards, so that it is seen
/// when somebody writes where or when he must not. One thread; the constructor allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective/shard.h"
#include "sim/reference/collective_reference.h"

namespace gradwire::sim {

struct OpPlan {
  std::uint64_t count = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  bool in_place = false;
  std::uint32_t tag = 99;
  std::uint64_t seed = 1;
  Collective collective = Collective::kAllReduce;
  std::uint32_t root = collective::kNoRoot;
  std::uint32_t element_bytes = 0;  ///< of kBytes
  WireFormat wire = WireFormat::kSame;
  bool feeds_back = false;  ///< with a format: each rank has residuals

  [[nodiscard]] std::uint32_t width() const noexcept {
    return datatype == DataType::kBytes ? element_bytes : gradwire::element_bytes(datatype);
  }
  /// Whether no rank can be done with it before all have posted it. Of a reduce the root's cannot:
  /// the others may only send.
  [[nodiscard]] bool needs_all(bool is_root) const noexcept {
    return collective == Collective::kBarrier ||
           (count != 0 && collective != Collective::kBroadcast &&
            (collective != Collective::kReduce || is_root));
  }
};

class OpCase {
 public:
  OpCase(std::uint16_t nranks, std::uint16_t members, const OpPlan& plan);
  /// @param ranks  [processes]: the rank of each.
  OpCase(std::uint16_t nranks, std::span<const std::uint16_t> ranks, const OpPlan& plan);

  [[nodiscard]] collective::OpSpec spec(std::uint16_t rank, std::uint64_t op_seq);
  /// Whether the op's root is a process of that rank.
  [[nodiscard]] bool is_root(std::uint16_t rank) const noexcept {
    return plan_.root < ranks_.size() && ranks_[plan_.root] == rank;
  }
  [[nodiscard]] const OpPlan& plan() const { return plan_; }
  /// Empty if the outputs of the rank's members are right to the bit, and nothing else of their
  /// memory has changed; else where not.
  [[nodiscard]] std::string wrong(std::uint16_t rank) const;
  /// The rank's op ended and its clients use the memory for something else.
  void retire(std::uint16_t rank);
  /// After retire(): empty, or which byte of the clients' memory was changed since.
  [[nodiscard]] std::string touched(std::uint16_t rank) const;

 private:
  struct Buffers {
    std::vector<std::byte> input;
    std::uint64_t input_hash = 0;
    std::vector<std::byte> memory;  ///< the output, in place the input too, with guards around it
    std::size_t input_at = 0;       ///< in memory, if it is in place
    std::size_t output_at = 0;      ///< in memory
  };
  /// What is added to what a rank gives, and what its encoding loses.
  struct Residuals {
    std::vector<float> out;  ///< with a guard on each side
    std::vector<float> right;
  };
  [[nodiscard]] bool has_residuals() const noexcept { return !residuals_.empty(); }
  void lay_out_residuals(std::span<const std::byte* const> inputs);
  [[nodiscard]] std::string wrong_residuals(std::uint16_t rank) const;
  void lay_out(Buffers& each, std::uint32_t process) const;
  [[nodiscard]] std::string changed(const Buffers& each, std::uint32_t process) const;

  std::vector<std::uint16_t> ranks_;                   ///< [processes]
  std::vector<std::vector<std::uint32_t>> processes_;  ///< [nranks], in member order
  OpPlan plan_;
  std::vector<double> factors_;                    ///< [processes] of a premul-sum, else empty
  std::vector<std::vector<double>> rank_factors_;  ///< [nranks], in member order
  CollectiveCall call_;
  std::vector<Buffers> buffers_;  ///< [processes]
  std::vector<std::byte> expected_;
  // [nranks] of an op that feeds back, else empty.
  std::vector<std::vector<float>> added_;
  std::vector<std::vector<float>> given_;  ///< a copy of added_ for clients to have
  std::vector<Residuals> residuals_;
};
/// Most tests have all-reduces alone.
using AllReduceCase = OpCase;

}  // namespace gradwire::sim
