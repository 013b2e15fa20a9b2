// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// An error of those who call: one op that some ranks call otherwise than the others, or one end of
/// a transfer. Any thread; the vector allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/ops/op_spec.h"
#include "sim/reference/reference.h"
#include "wire/packet.h"

namespace gradwire::sim {

struct OddCalls {
  /// What of an OpSpec says what is called.
  struct Call {
    std::uint64_t count = 0;
    std::uint32_t tag = 0;
    Collective collective = Collective::kAllReduce;
    DataType datatype = DataType::kFloat32;
    RedOp redop = RedOp::kSum;
    std::uint32_t root = collective::kNoRoot;
    std::uint32_t element_bytes = 0;
    friend bool operator==(const Call&, const Call&) = default;
  };
  std::uint64_t op_seq = 0;                ///< 0: every op is called alike
  std::vector<std::optional<Call>> calls;  ///< [nranks]: of those that call it otherwise
  std::optional<std::uint64_t> end;        ///< of a transfer: sim::TransferJob's number of it
  wire::TransferTerms terms;               ///< with which that end is posted

  [[nodiscard]] bool any() const noexcept { return op_seq != 0 || end.has_value(); }
  /// What a rank calls, with the plan of all others.
  [[nodiscard]] Call call_of(const OpPlan& plan, std::uint64_t op, std::uint16_t rank) const;
  [[nodiscard]] bool is_odd(std::uint64_t op, std::uint16_t rank) const noexcept {
    return op_seq != 0 && op == op_seq && calls[rank].has_value();
  }
  /// @param spec  as planned; changed if the rank calls it otherwise.
  void apply(collective::OpSpec& spec, std::uint16_t rank) const noexcept {
    if (!is_odd(spec.op_seq, rank)) return;
    const Call& call = *calls[rank];
    spec.count = call.count;
    spec.tag = call.tag;
    spec.collective = call.collective;
    spec.datatype = call.datatype;
    spec.redop = call.redop;
    spec.root = call.root;
    spec.element_bytes = call.element_bytes;
  }
};

}  // namespace gradwire::sim
