// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What each ethdev driver allows, as seen with DPDK 22.11 and not as its capability flags say.
/// A driver that is not listed is taken for a physical NIC. Any thread; only frame_limits()
/// allocates (its error text).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gradwire::port {

/// How the largest frame of a port is found.
enum class FrameLimitRule : std::uint8_t {
  kMemifBuffer,    ///< devarg `bsize`; dev_info says 1518 whatever it is
  kPacketFrame,    ///< devarg `framesz` less the kernel's header, and the interface's MTU
  kXdpChunk,       ///< the interface's MTU; an mbuf with the kernel's headroom is one UMEM chunk
  kDeviceInfo,     ///< dev_info.max_mtu; the MTU is set through the driver
  kWhateverMbufs,  ///< pointers or nothing travel: the mbuf's data room is the only limit
};

/// How a packet for lane i comes to queue i.
enum class Steering : std::uint8_t {
  kPaired,  ///< what the peer sends on its queue i arrives on ours
  kFlow,    ///< an rte_flow rule on the lane's UDP port
  kNone,    ///< the kernel spreads flows by a hash of its own: one lane only
};

/// How payloads come to lie in a mempool of their own, in a GPU's memory.
enum class PayloadSplit : std::uint8_t {
  kNone,    ///< they do not
  kDevice,  ///< RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT, where the device says that it has it
  kAsSent,  ///< pointers travel: a frame has the segments that it was sent with
};

struct DriverRow {
  std::string_view driver;   ///< rte_eth_dev_info::driver_name; empty = any other
  bool rx_exclusive;         ///< a received mbuf is nobody else's, whatever its refcnt
  bool rx_may_chain;         ///< a received frame may have several segments
  bool rx_interrupts;        ///< rte_eth_dev_rx_intr_enable() may work
  bool tx_copies;            ///< a frame's bytes are not looked at any more when tx_burst returns
  bool tx_chains;            ///< a frame of several segments is sent right
  bool tx_indirect;          ///< attached (indirect, external) mbufs are sent right
  bool tx_may_block;         ///< tx_burst can wait in the kernel
  bool sets_mtu;             ///< rte_eth_dev_set_mtu() works and is wanted
  bool keeps_rx_mbufs;       ///< rx descriptors hold mbufs of the packet pool
  bool bursts_need_link;     ///< while the link is down, rx_burst and tx_burst can crash
  std::uint16_t tx_burst;    ///< frames per tx_burst call
  std::uint32_t held_mbufs;  ///< that the driver holds per queue beside its descriptors
  std::uint8_t rx_copies;    ///< of each byte, by the driver and the kernel's socket layer
  std::uint8_t tx_copies_count;
  FrameLimitRule limit;
  Steering steering;
  PayloadSplit payload_split;
  const char* why_no_split;  ///< nullptr where there is a split
  const char* why;           ///< one sentence for the operator
};

/// @return the row of `driver_name`, or that of a physical NIC.
[[nodiscard]] const DriverRow& driver_row(std::string_view driver_name) noexcept;

/// What is known of a device before it is configured.
struct DeviceFacts {
  std::string devargs;              ///< "role=server,bsize=9216"; empty for PCI
  std::uint32_t max_rx_pktlen = 0;  ///< dev_info
  std::uint32_t max_mtu = 0;        ///< dev_info; 65535 = the driver does not say
  std::uint32_t kernel_mtu = 0;     ///< of the interface below; 0 = there is none
  std::uint32_t wanted_mtu = 0;     ///< the configuration's; 0 = as large as can be
  bool vlan = false;                ///< frames carry a VLAN tag
};

struct FrameLimits {
  std::uint32_t mtu = 0;           ///< bytes of the IP packet
  std::uint32_t frame_bytes = 0;   ///< Ethernet header on, CRC not
  std::uint32_t buffer_bytes = 0;  ///< data room of a receive mbuf, headroom not counted
};

/// The largest MTU where none is wanted and nothing else limits it.
inline constexpr std::uint32_t kJumboMtu = 9000;

/// The largest MTU of an interface that AF_XDP sockets work on.
[[nodiscard]] std::uint32_t xdp_max_mtu() noexcept;

/// @return the limits, or why `wanted_mtu` cannot be had and what would be right.
[[nodiscard]] Result<FrameLimits> frame_limits(const DriverRow& row, const DeviceFacts& facts,
                                               std::string_view device);

/// @return the value of `key` in "a=1,b=2".
[[nodiscard]] std::optional<std::string_view> devarg(std::string_view devargs,
                                                     std::string_view key) noexcept;

}  // namespace gradwire::port
