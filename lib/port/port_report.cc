// SPDX-License-Identifier: BSD-3-Clause
// What a port says of itself: link, counters, and what was set up.
#include <fmt/format.h>
#include <rte_ethdev.h>

#include "port/memif/wake_socket.h"
#include "port/port.h"

namespace gradwire::port {

bool Port::link_up() const noexcept {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

std::uint64_t Port::rate_bps() const noexcept {
  if (config_.rate_bps != 0) return config_.rate_bps;
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(id_, &link) != 0 || link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN) {
    return 0;
  }
  return std::uint64_t{link.link_speed} * 1'000'000;
}

PortCounters Port::counters() const noexcept {
  PortCounters out;
  if (wake_socket_ >= 0 && row_->limit == FrameLimitRule::kPacketFrame) {
    dropped_by_kernel_ += packets_dropped(wake_socket_);
  }
  rte_eth_stats stats{};
  if (rte_eth_stats_get(id_, &stats) != 0) return out;
  out.rx_packets = stats.ipackets;
  out.rx_bytes = stats.ibytes;
  out.rx_missed = stats.imissed + dropped_by_kernel_;
  out.rx_errors = stats.ierrors;
  out.rx_no_mbuf = stats.rx_nombuf;
  out.tx_packets = stats.opackets;
  out.tx_bytes = stats.obytes;
  out.tx_errors = stats.oerrors;
  return out;
}

PortReport Port::report() const {
  PortReport out;
  static_cast<PortSetup&>(out) = setup_;
  out.device = config_.device;
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(id_, &info) == 0 && info.driver_name != nullptr) {
    out.driver = info.driver_name;
  }
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(id_, &link) == 0) {
    if (link.link_status != RTE_ETH_LINK_UP) {
      out.link = client_ ? client_->why_down() : "down";
    } else if (link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ||
               link.link_speed == RTE_ETH_SPEED_NUM_NONE) {
      out.link = "up";
    } else {
      out.link = fmt::format("up {} Mbit/s {} duplex", link.link_speed,
                             link.link_duplex == RTE_ETH_LINK_FULL_DUPLEX ? "full" : "half");
    }
  }
  out.mac = mac_;
  out.ipv6 = config_.ip.family == 6;
  out.mtu = limits_.mtu;
  out.frame_bytes = limits_.frame_bytes;
  out.numa_node = socket_;
  out.joined_queues = joined_queues();
  out.rx_interrupts = can_interrupt();
  out.hashed_queues = hashed_queues_;
  out.rx_copies = row_->rx_copies;
  out.tx_copies = row_->tx_copies_count;
  return out;
}

}  // namespace gradwire::port
