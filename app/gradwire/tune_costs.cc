// SPDX-License-Identifier: BSD-3-Clause
#include "tune_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace gradwire::cli {
namespace {

// Four times the defaults, since each lane keeps memory for such ops of each group.
constexpr std::uint32_t kDirectMaxKib = 256;
constexpr std::uint32_t kTwoStepMaxKib = 64;
constexpr std::uint32_t kGatheredMaxKib = 1024;
constexpr std::uint32_t kRanksMax = 1024;
/// A byte's cost is for the wire, a copy and a fold: a third each, since two ranks cannot tell
/// them apart.
constexpr double kParts = 3;
/// Groups for which the bound of direct ops is meant.
constexpr std::uint32_t kFewRanks = 16;
constexpr std::uint32_t kManyRanks = 64;

/// The longest transport.hop_ns.
constexpr std::uint32_t kHopMaxNs = 1'000'000'000;

/// As a key takes it.
std::uint32_t figure(double value, std::uint32_t most) {
  return static_cast<std::uint32_t>(std::clamp(std::round(value), 1.0, static_cast<double>(most)));
}

double packets_of(const CostSample& sample) {
  return std::ceil(static_cast<double>(kCostBytes) / sample.payload_bytes);
}

/// The nearest power of two, in KiB.
std::uint32_t rounded_kib(double bytes, std::uint32_t most) {
  const double kib = bytes / 1024;
  if (kib < 1) return 1;
  const auto rounded = static_cast<std::uint64_t>(std::exp2(std::round(std::log2(kib))));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(rounded, most));
}

/// What an op without many bytes takes in one hop, from each rank to each.
double one_hop_us(const LinkCosts& costs, std::uint32_t nranks) {
  const double packets_us = costs.packet_us * (nranks - 1);
  return std::max(costs.hop_us, packets_us) + packets_us;
}

double steps_us(const LinkCosts& costs, std::uint32_t nranks) {
  return std::bit_width(nranks - 1) * (costs.hop_us + 2 * costs.packet_us);
}

/// Bytes that cost what a hop of the ring does.
double hop_bytes(const LinkCosts& costs) { return costs.hop_us * 1000 / costs.byte_ns; }

/// For how many ranks the bound of gathered ops is meant, if more than `ranks` have them.
std::uint32_t gathering_ranks(std::uint32_t ranks) { return std::min(2 * ranks, kRanksMax); }

/// Bytes that cost what a second hop does.
double direct_bytes(const LinkCosts& costs, std::uint32_t nranks) {
  return one_hop_us(costs, nranks) * 1000 / costs.byte_ns;
}

/// Bytes that cost what the steps save.
double gathered_bytes(const LinkCosts& costs, std::uint32_t nranks, std::uint32_t payload_bytes) {
  const double saved_us = one_hop_us(costs, nranks) - steps_us(costs, nranks);
  return saved_us * 1000 / (costs.byte_ns / kParts + 2000 * costs.packet_us / payload_bytes);
}

}  // namespace

Result<LinkCosts> link_costs(const CostSample& few, const CostSample& many) {
  LinkCosts costs;
  const double more = packets_of(many) - packets_of(few);
  costs.packet_us = more > 0 ? (many.large_us - few.large_us) / (2 * more) : 0;
  costs.hop_us = few.small_us - 2 * costs.packet_us;
  costs.byte_ns = (few.large_us - few.small_us - 2 * costs.packet_us * (packets_of(few) - 1)) *
                  1000 / static_cast<double>(kCostBytes);
  if (costs.packet_us > 0 && costs.hop_us > 0 && costs.byte_ns > 0) return costs;
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("what a hop, a packet and a byte cost does not follow from these times: 64 B in "
                  "{:.1f} us, 16 KiB in {:.1f} us with payloads of {} bytes and in {:.1f} us with "
                  "payloads of {}. Other programs on the cores disturb so short ops: run gradwire "
                  "tune again while they are idle",
                  few.small_us, few.large_us, few.payload_bytes, many.large_us,
                  many.payload_bytes));
}

ShapeThresholds thresholds_for(const LinkCosts& costs, std::uint32_t payload_bytes) {
  ShapeThresholds out;
  const double direct = std::sqrt(direct_bytes(costs, kFewRanks) * direct_bytes(costs, kManyRanks));
  out.direct_kib = rounded_kib(direct, kDirectMaxKib);
  // Two steps save 2(n-1) hops, and copy each byte three times more: half of where these meet.
  out.two_step_kib = rounded_kib(hop_bytes(costs), kTwoStepMaxKib);
  std::uint32_t ranks = 2;
  while (ranks < kRanksMax && one_hop_us(costs, ranks + 1) <= steps_us(costs, ranks + 1)) ++ranks;
  out.gathered_ranks = ranks;
  out.gathered_kib =
      rounded_kib(gathered_bytes(costs, gathering_ranks(ranks), payload_bytes), kGatheredMaxKib);
  return out;
}

std::string threshold_lines(const LinkCosts& costs, std::uint32_t payload_bytes) {
  const ShapeThresholds bounds = thresholds_for(costs, payload_bytes);
  const std::uint32_t ranks = bounds.gathered_ranks;
  const std::uint32_t twice = gathering_ranks(ranks);
  return fmt::format(
      "# A hop takes {:.2f} us on this link, a packet {:.2f} us at each end, a byte {:.3f} ns.\n"
      "# Rank 0's thresholds count for its group; they change no bit of any result.\n"
      "# A second hop takes as long as {:.0f} KiB at {} ranks, {:.0f} KiB at {}:\n"
      "direct_kib = {}\n"
      "# The ring takes 2(n-1) hops; a hop takes as long as {:.0f} KiB of one rank:\n"
      "two_step_kib = {}\n"
      "# Packets to all of {} ranks take {:.0f} us, log2 steps to all {:.0f} us; to {} {:.0f} us "
      "and {:.0f} us:\n"
      "gathered_ranks = {}\n"
      "gathered_kib = {}  # what steps save at {} ranks, in bytes\n"
      "# Larger ops go by tiles or round the ring, whichever takes less time by these three:\n"
      "packet_ns = {}\n"
      "byte_ps = {}\n"
      "hop_ns = {}\n",
      costs.hop_us, costs.packet_us, costs.byte_ns, direct_bytes(costs, kFewRanks) / 1024,
      kFewRanks, direct_bytes(costs, kManyRanks) / 1024, kManyRanks, bounds.direct_kib,
      hop_bytes(costs) / 1024, bounds.two_step_kib, ranks, one_hop_us(costs, ranks),
      steps_us(costs, ranks), twice, one_hop_us(costs, twice), steps_us(costs, twice), ranks,
      bounds.gathered_kib, twice, figure(costs.packet_us * 1e3, UINT16_MAX),
      figure(costs.byte_ns / kParts * 1e3, UINT16_MAX), figure(costs.hop_us * 1e3, kHopMaxNs));
}

}  // namespace gradwire::cli
