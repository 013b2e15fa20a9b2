// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What each ethdev driver really supports, as observed with DPDK 22.11 and 24.11, whatever its
/// capability flags say. A driver that is not listed is treated as a physical NIC. Any thread; only
/// frame_limits() allocates (its error text).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gradwire::port {

/// How the largest frame of a port is found.
enum class FrameLimitRule : std::uint8_t {
  kMemifBuffer,    ///< devarg `bsize`; dev_info always says 1518
  kPacketFrame,    ///< devarg `framesz` less the kernel's header, and the interface's MTU
  kXdpChunk,       ///< the interface's MTU; an mbuf with the kernel's headroom is one UMEM chunk
  kDeviceInfo,     ///< dev_info.max_mtu; the MTU is set through the driver
  kWhateverMbufs,  ///< frames are passed by pointer or not at all: only the mbuf's data room limits
                   ///< them
};

/// How a packet for lane i gets to queue i.
enum class Steering : std::uint8_t {
  kPaired,  ///< a frame that the peer sends on its queue i arrives on our queue i
  kFlow,    ///< an rte_flow rule on the lane's UDP port
  kNone,    ///< flows are spread by a hash: only one lane is possible
};

/// How payloads get into a separate mempool in a GPU's memory.
enum class PayloadSplit : std::uint8_t {
  kNone,    ///< not at all
  kDevice,  ///< RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT, if the device has it
  kAsSent,  ///< frames are passed by pointer and keep the segments that they were sent with
};

struct DriverRow {
  std::string_view driver;   ///< rte_eth_dev_info::driver_name; empty = any other
  bool rx_exclusive;         ///< a received mbuf is not shared, whatever its refcnt
  bool rx_interrupts;        ///< rte_eth_dev_rx_intr_enable() may work
  bool tx_copies;            ///< the driver no longer reads a frame's bytes after tx_burst returns
  bool tx_may_block;         ///< tx_burst can wait in the kernel
  bool sets_mtu;             ///< rte_eth_dev_set_mtu() works and is wanted
  bool keeps_rx_mbufs;       ///< rx descriptors hold mbufs of the packet pool
  bool bursts_need_link;     ///< while the link is down, rx_burst and tx_burst can crash
  bool in_memory;            ///< frames stay in this host's memory, so no cable flips their bits
  std::uint16_t tx_burst;    ///< frames per tx_burst call
  std::uint32_t held_mbufs;  ///< mbufs that the driver holds per queue besides its descriptors
  std::uint8_t rx_copies;    ///< how often the driver and the kernel's socket layer copy each byte
  std::uint8_t tx_copies_count;
  FrameLimitRule limit;
  Steering steering;
  PayloadSplit payload_split;
  bool moves_vlan = false;    ///< takes the tag out of frames that it is given to send
  std::uint32_t max_mtu = 0;  ///< whatever the device says; 0: what that says
  const char* why_no_split;   ///< nullptr if it can split
  const char* why;            ///< one sentence for the operator
};

/// @return the row of `driver_name`, or that of a physical NIC.
[[nodiscard]] const DriverRow& driver_row(std::string_view driver_name) noexcept;

/// Facts about a device before it is configured.
struct DeviceFacts {
  std::string devargs;              ///< "role=server,bsize=9216"; empty for PCI
  std::uint32_t max_rx_pktlen = 0;  ///< dev_info
  std::uint32_t max_mtu = 0;        ///< dev_info; 65535 = the driver does not report it
  std::uint32_t kernel_mtu = 0;     ///< of the interface below; 0 = there is none
  std::uint32_t wanted_mtu = 0;     ///< the configuration's; 0 = as large as can be
  bool vlan = false;                ///< frames carry a VLAN tag
};

struct FrameLimits {
  std::uint32_t mtu = 0;           ///< bytes of the IP packet
  std::uint32_t frame_bytes = 0;   ///< with Ethernet header, without CRC
  std::uint32_t buffer_bytes = 0;  ///< data room of a receive mbuf, headroom not counted
};

/// The MTU if none is configured and the device allows it.
inline constexpr std::uint32_t kJumboMtu = 9000;

/// The largest MTU of an interface that AF_XDP sockets work on.
[[nodiscard]] std::uint32_t xdp_max_mtu() noexcept;

/// @return the limits, or why `wanted_mtu` is not possible and what would be.
[[nodiscard]] Result<FrameLimits> frame_limits(const DriverRow& row, const DeviceFacts& facts,
                                               std::string_view device);

/// @return the value of `key` in "a=1,b=2".
[[nodiscard]] std::optional<std::string_view> devarg(std::string_view devargs,
                                                     std::string_view key) noexcept;

}  // namespace gradwire::port
