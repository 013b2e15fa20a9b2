// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/peer_links.h"

namespace gradwire::collective {

PeerLinks::PeerLinks(const ShardConfig& config, const PeerEnds& ends)
    : timeouts_(config.timeouts), sender_(config.sender), ends_(ends), peers_(config.all_ranks()) {
  for (Peer& peer : peers_) peer.rtt = transport::RttEstimator(config.sender.initial_rtt_ns);
  awaited_.reserve(config.all_ranks());
}

void PeerLinks::await(std::uint16_t rank, TimeNs now) noexcept {
  Peer& peer = peers_[rank];
  peer.next_ask = first_ask(now);
  if (peer.listed) return;
  peer.listed = true;
  awaited_.push_back(rank);
}

TimeNs PeerLinks::repeated_after(std::uint16_t rank, std::uint32_t tries,
                                 TimeNs most) const noexcept {
  const transport::RttEstimator& rtt = peers_[rank].rtt;
  const TimeNs once = rtt.smoothed_ns() + std::max(4 * rtt.variance_ns(), sender_.granularity_ns) +
                      sender_.max_ack_delay_ns;
  const std::uint32_t shift = std::min(tries, kShiftMax);
  return once > most >> shift ? most : once << shift;
}

void PeerLinks::drop_all() noexcept {
  for (const std::uint16_t rank : awaited_) peers_[rank].listed = false;
  awaited_.clear();
  silent_.reset();
}

}  // namespace gradwire::collective
