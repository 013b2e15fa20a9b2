// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The numbers of the cost model (doc/performance.md, Which shape an op has) as gradwire tune
/// measures them on a link, and the thresholds of shapes that follow from them. Pure but for
/// strings.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace gradwire::cli {

/// Of the all-reduces of two ranks by which costs are measured: each sends its whole input.
inline constexpr std::uint64_t kCostBytes = 16u << 10;
inline constexpr std::uint32_t kCostIterations = 1000;

/// The shortest times of all-reduces with one payload: what disturbs them only adds.
struct CostSample {
  std::uint32_t payload_bytes = 0;
  double small_us = 0;  ///< of 64 B: one packet each way
  double large_us = 0;  ///< of kCostBytes
};

struct LinkCosts {
  double hop_us = 0;     ///< from wire to wire, without what the endpoints do
  double packet_us = 0;  ///< an endpoint's, for a packet sent or received
  double byte_ns = 0;    ///< on the wire, copied and folded
};

/// @param many  with more packets for the same bytes than `few`.
/// @return kUnavailable, with the figures, if they allow no such costs.
[[nodiscard]] Result<LinkCosts> link_costs(const CostSample& few, const CostSample& many);

struct ShapeThresholds {
  std::uint32_t direct_kib = 0;
  std::uint32_t two_step_kib = 0;
  std::uint32_t gathered_kib = 0;
  std::uint32_t gathered_ranks = 0;
};
/// @param payload_bytes  that the group will have.
[[nodiscard]] ShapeThresholds thresholds_for(const LinkCosts& costs, std::uint32_t payload_bytes);

/// Lines for [transport], each with its reason.
[[nodiscard]] std::string threshold_lines(const LinkCosts& costs, std::uint32_t payload_bytes);

}  // namespace gradwire::cli
