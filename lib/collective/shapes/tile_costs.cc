// SPDX-License-Identifier: BSD-3-Clause
#include "collective/shapes/tile_costs.h"

#include "base/require.h"

namespace gradwire::collective {
namespace {

using Wide = TileCosts::Picoseconds;

/// A byte at 100 Mbit/s.
constexpr std::uint64_t kByteAtUnit = 80'000;
/// Pieces that a pull asks for, and that a word of an owner tells of.
constexpr std::uint64_t kPiecesOfWord = 8;

constexpr Wide divided_up(Wide a, Wide b) noexcept { return (a + b - 1) / b; }
constexpr bool is_half(Collective collective) noexcept {
  return collective != Collective::kAllReduce;
}

}  // namespace

TileCosts::TileCosts(const Endpoint& endpoint, std::span<const std::uint32_t> rates,
                     std::uint16_t nranks, const TileShares* shares, std::uint8_t lanes) noexcept
    : packet_ns_(endpoint.packet_ns),
      byte_ps_(endpoint.byte_ps),
      hop_ns_(endpoint.hop_ns),
      nranks_(nranks),
      lanes_(lanes),
      slowest_(*std::ranges::min_element(rates.first(nranks))) {
  require(nranks >= 2 && lanes > 0 && slowest_ > 0, "rates are of a group whose ports are known");
  // Equal segments.
  carried_ = 2 * (nranks - std::uint64_t{1});
  of_ = nranks;
  at_ = slowest_;
  if (shares == nullptr) return;
  of_ = shares->all();
  carried_ = 0;
  for (std::uint32_t rank = 0; rank < rates.size(); ++rank) {
    // One with members sends what others own and takes it back, but for what it owns itself.
    const std::uint64_t share = shares->share_of(rank);
    const std::uint64_t carries =
        rank < nranks ? of_ + (nranks - std::uint64_t{2}) * share : nranks * share;
    if (Wide{carries} * at_ <= Wide{carried_} * rates[rank]) continue;
    carried_ = carries;
    at_ = rates[rank];
  }
}

Wide TileCosts::hop() const noexcept { return Wide{hop_ns_} * 1000 + 2 * packet(); }

Wide TileCosts::ring_time(Collective collective, std::uint64_t bytes,
                          std::uint32_t payload_bytes) const noexcept {
  const std::uint64_t passes = is_half(collective) ? 1 : 2;
  const Wide sent = Wide{bytes} * passes * (nranks_ - 1u) / nranks_;
  const Wide wire = sent * kByteAtUnit / slowest_;
  const Wide cores =
      2 * packet() * divided_up(sent, payload_bytes) + Wide{bytes} * passes * byte_ps_;
  // Most of the hops go by while chunks stream: by measurement a quarter of the shorter is added.
  const Wide hops = passes * (nranks_ - 1u) * hop();
  const Wide stream = std::max(wire, cores / lanes_);
  return std::max(hops, stream) + std::min(hops, stream) / 4;
}

Wide TileCosts::tiles_time(Collective collective, std::uint64_t bytes,
                           std::uint32_t payload_bytes) const noexcept {
  const std::uint64_t passes = is_half(collective) ? 1 : 2;
  const Wide sent = Wide{bytes} * passes * (nranks_ - 1u) / nranks_;
  const Wide wire = is_half(collective) ? sent * kByteAtUnit / slowest_
                                        : Wide{bytes} * carried_ * kByteAtUnit / (Wide{of_} * at_);
  // A piece of each owner at least. Pulls, and words of what was folded, go to each.
  const Wide pieces = std::max(divided_up(sent, payload_bytes), Wide{passes} * (nranks_ - 1u));
  const Wide each = kPiecesOfWord * (nranks_ - 1u);
  const Wide packets = 2 * pieces + each * std::max(Wide{1}, divided_up(pieces, each));
  // Parts lie in memory between packets and folds, results between folds and packets: by
  // measurement 7/4 of the ring's bytes.
  const Wide cores = packet() * packets + Wide{bytes} * passes * byte_ps_ * 7 / 4;
  return (is_half(collective) ? 3 : 5) * hop() + std::max(wire, cores / lanes_);
}

bool TileCosts::tiles_are_faster(Collective collective, std::uint64_t bytes,
                                 std::uint32_t payload_bytes) const noexcept {
  return 8 * tiles_time(collective, bytes, payload_bytes) <=
         7 * ring_time(collective, bytes, payload_bytes);
}

}  // namespace gradwire::collective
