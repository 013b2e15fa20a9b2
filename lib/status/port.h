// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The part of daemon_status.h that is about ports. Plain data; any thread; it allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gradwire::status {

struct PortCounters {
  std::uint64_t rx_packets = 0;
  std::uint64_t rx_bytes = 0;
  std::uint64_t rx_missed = 0;
  std::uint64_t rx_errors = 0;
  std::uint64_t rx_no_mbuf = 0;
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t tx_errors = 0;
  std::uint64_t neighbors_evicted = 0;
  std::uint64_t arp_refused = 0;
  std::uint64_t neighbors_moved = 0;
  std::uint64_t neighbor_claims = 0;
  std::uint64_t neighbors_unanswered = 0;
  std::uint64_t duplicate_addresses = 0;
};

struct Port {
  std::string device;
  std::string driver;
  std::string link;
  bool up = false;
  std::string mac;
  std::string address;
  std::uint32_t mtu = 0;
  int numa_node = -1;
  std::uint32_t queues = 0;
  std::uint32_t joined_queues = 0;  ///< fewer if a memif peer has fewer
  bool rx_interrupts = false;
  bool flow_steering = false;
  std::uint32_t hashed_queues =
      0;  ///< of an AF_XDP port's interface, if a hash chooses one of them
  bool splits_payload = false;
  std::uint64_t neighbors = 0;               ///< that are found or looked for
  std::optional<std::string> duplicate_mac;  ///< of another host with this address
  PortCounters counters;
};

}  // namespace gradwire::status
