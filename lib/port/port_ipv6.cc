// SPDX-License-Identifier: BSD-3-Clause
// What a port needs for IPv6 besides: checksums, and the groups of hosts to which its neighbors
// address their questions.
#include <fmt/format.h>
#include <linux/if_packet.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/require.h"
#include "port/neighbors/neighbor_discovery.h"
#include "port/port.h"
#include "port/udp_sum.h"

namespace gradwire::port {

/// Before the device is configured.
Result<void> Port::prepare_ipv6(std::uint64_t tx_offload_capa) {
  if ((tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) == 0) return sum_by_cpu();
  setup_.tx_offloads |= RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
  setup_.udp_sum = wire::UdpSum::kDevice;
  return {};
}

Result<void> Port::sum_by_cpu() {
  setup_.udp_sum = wire::UdpSum::kCpu;
  if (!setup_.splits_payload) return {};
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("port {}: over IPv6 a UDP checksum is needed. Its driver does not compute "
                  "it{}, and the CPU cannot, since payloads lie in GPU memory: give the "
                  "port an IPv4 address, or set gpu.staging = copy",
                  config_.device,
                  setup_.udp_sum_refusal.empty() ? "" : " (" + setup_.udp_sum_refusal + ")"));
}

/// A driver has one flag for both versions of IP, and may mean it over IPv4 alone. So it is given a
/// frame as lanes send them, to look at. The device has been started.
Result<void> Port::check_udp_sum(rte_mempool& pool) {
  constexpr wire::MacAddress kNobody = {0x02, 0, 0, 0, 0, 0};
  if (setup_.udp_sum != wire::UdpSum::kDevice) return {};
  wire::FrameAddresses addresses;
  addresses.source_mac = mac_;
  addresses.destination_mac = kNobody;
  addresses.vlan_id = config_.vlan_id;
  addresses.source_ip = addresses.destination_ip = config_.ip;
  const auto headers = wire::FrameTemplate::make(addresses);
  require(headers.has_value(), "a port's own addresses make a frame");
  const std::size_t ip = wire::kEthernetBytes + (config_.vlan_id ? wire::kVlanBytes : 0);
  const std::size_t bytes = headers->bytes() + wire::kHeaderBytes;
  rte_mbuf* frame = rte_pktmbuf_alloc(&pool);
  auto* const data = frame == nullptr ? nullptr
                                      : reinterpret_cast<std::byte*>(rte_pktmbuf_append(
                                            frame, static_cast<std::uint16_t>(bytes)));
  if (data == nullptr) {
    rte_pktmbuf_free(frame);
    setup_.udp_sum_refusal =
        fmt::format("it was not asked: mempool {} has no mbuf for that", pool.name);
    return sum_by_cpu();
  }
  std::fill_n(data, bytes, std::byte{0});
  headers->write(data, wire::kHeaderBytes);
  if (wire::complete_ipv6({data + ip, bytes - ip}, wire::UdpSum::kDevice)) {
    ask_for_udp_sum(*frame, ip);
  }
  rte_errno = 0;
  const bool takes = rte_eth_tx_prepare(id_, 0, &frame, 1) == 1;
  const int error = rte_errno;
  rte_pktmbuf_free(frame);
  if (takes) return {};
  setup_.udp_sum_refusal = rte_strerror(error);
  return sum_by_cpu();
}

/// A port that hears no groups is never found by its neighbors, but a device without a filter says
/// the same as one that fails, so there is no error.
void Port::hear_groups() {
  const std::array<wire::MacAddress, 2> macs = {group_mac(all_nodes()),
                                                group_mac(solicited_node(config_.ip))};
  std::array<rte_ether_addr, 2> groups{};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::copy(macs[i].begin(), macs[i].end(), std::begin(groups[i].addr_bytes));
  }
  if (rte_eth_dev_set_mc_addr_list(id_, groups.data(), groups.size()) == 0) return;
  if (if_index_ == 0) {
    if (rte_eth_allmulticast_enable(id_) != 0) {
      [[maybe_unused]] const int ignored = rte_eth_promiscuous_enable(id_);
    }
    return;
  }
  // The kernel's interface has the filter. No protocol: the socket receives nothing.
  group_socket_ = ipc::UniqueFd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!group_socket_) return;
  for (const wire::MacAddress& mac : macs) {
    packet_mreq wanted{};
    wanted.mr_ifindex = static_cast<int>(if_index_);
    wanted.mr_type = PACKET_MR_MULTICAST;
    wanted.mr_alen = static_cast<unsigned short>(mac.size());
    std::copy(mac.begin(), mac.end(), std::begin(wanted.mr_address));
    [[maybe_unused]] const int ignored =
        setsockopt(group_socket_.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted, sizeof wanted);
  }
}

}  // namespace gradwire::port
