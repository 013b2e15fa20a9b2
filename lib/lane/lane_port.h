// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A port as one lane has it: its queue there, this lane's part of its rate, and what limits the
/// answers that go out by it. The lane owns it; nothing here allocates.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/types.h"
#include "lane/port_share.h"
#include "lane/tx_queue.h"
#include "lane/tx_trace.h"
#include "port/fault_stage.h"
#include "port/neighbors/reply_limit.h"
#include "port/port.h"
#include "wire/frame.h"

namespace gradwire::lane {

struct LanePort {
  const port::Port* port = nullptr;
  std::uint16_t port_id = 0;
  wire::MacAddress mac{};
  wire::IpAddress ip;
  std::optional<std::uint16_t> vlan_id;
  bool rx_exclusive = false;
  bool armed = false;  ///< its interrupt is enabled for the current sleep
  int socket = -1;     ///< the driver's, while packets there end a sleep
  bool wakes = false;  ///< a packet ended the last sleep for which it was, or would have
  std::uint16_t rx_burst = 32;
  TxQueue tx;
  bool takes_bursts = false;  ///< as of the start of this round
  port::ReplyLimit echoes;
  port::SenderLimit arp{SipHashKey{}};
  port::ReplyLimit too_big{100'000'000};
  std::unique_ptr<port::FaultStage> stage;
  port::FaultStage* faults = nullptr;  ///< nullptr while the stage has nothing to do
  PortShare share{0, 0};       ///< this lane's part of the port's rate, divided among groups
  std::size_t next_first = 0;  ///< place among the groups awake, if the port is not paced
  TxTrace trace;

  /// Whether a frame is addressed to it, by VLAN and MAC address.
  [[nodiscard]] bool gets(const wire::FrameView& view) const noexcept {
    return view.vlan_id == vlan_id &&
           (is_own(view.destination_mac) || is_multicast(view.destination_mac));
  }
  /// Whether an IP packet is addressed to its address, and to no group of hosts.
  [[nodiscard]] bool is_meant_by(const wire::FrameView& view) const noexcept {
    return view.destination_ip == ip && !is_multicast(view.destination_mac);
  }
  /// Faults come before the lane's own counters, so a frame dropped on purpose counts as never
  /// received.
  [[nodiscard]] std::span<rte_mbuf* const> pass_faults(std::span<rte_mbuf* const> arrived,
                                                       TimeNs now) noexcept {
    if (faults == nullptr) return arrived;
    const std::span<rte_mbuf* const> passed = faults->pass(arrived, now);
    if (faults->idle()) faults = nullptr;
    return passed;
  }

 private:
  [[nodiscard]] static bool is_multicast(const wire::MacAddress& address) noexcept {
    return (address[0] & 1) != 0;
  }
  /// Avoids the call of memcmp that std::array's operator makes.
  [[nodiscard]] bool is_own(const wire::MacAddress& address) const noexcept {
    using Words = std::array<std::uint16_t, 3>;
    const auto x = std::bit_cast<Words>(address);
    const auto y = std::bit_cast<Words>(mac);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2])) == 0;
  }
};

}  // namespace gradwire::lane
