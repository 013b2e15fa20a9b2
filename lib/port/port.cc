// SPDX-License-Identifier: BSD-3-Clause
#include "port/port.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_mbuf.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "port/frame_probe.h"
#include "port/interrupt_thread.h"
#include "port/memif/memif_release.h"
#include "port/memif/wake_socket.h"
#include "port/payload_split.h"

namespace gradwire::port {

namespace {

std::string available_ports() {
  std::string names;
  std::uint16_t id = 0;
  RTE_ETH_FOREACH_DEV(id) {
    char name[RTE_ETH_NAME_MAX_LEN] = {};
    if (rte_eth_dev_get_name_by_port(id, name) != 0) continue;
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names.empty() ? "none; name one by the EAL's --allow or --vdev" : names;
}

// With this MTU, XDP works on every kernel driver that supports it.
constexpr std::uint32_t kEveryDriverMtu = 1500;

/// Asks the kernel about its interface. @return whether it told.
bool ask_kernel(unsigned if_index, unsigned long question, ifreq& request) noexcept {
  if (if_index == 0 || if_indextoname(if_index, request.ifr_name) == nullptr) return false;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool told = ioctl(fd, question, &request) == 0;
  close(fd);
  return told;
}

// The MTU of the kernel's interface. DPDK always reports 1500.
std::uint32_t kernel_mtu(unsigned if_index) noexcept {
  ifreq request{};
  const bool told = ask_kernel(if_index, SIOCGIFMTU, request);
  return told && request.ifr_mtu > 0 ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

// Of the kernel's interface. A driver that tells of no channels has one.
std::uint32_t receive_queues(unsigned if_index) noexcept {
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request{};
  request.ifr_data = reinterpret_cast<char*>(&channels);
  if (!ask_kernel(if_index, SIOCETHTOOL, request)) return 1;
  return channels.rx_count + channels.combined_count;
}

tl::unexpected<Error> dpdk_error(const std::string& device, const char* what, int error) {
  return fail(ErrorCode::kSystem, fmt::format("port {}: {}: {} ({})", device, what,
                                              rte_strerror(error < 0 ? -error : error), error));
}

}  // namespace

Result<std::unique_ptr<Port>> Port::open(const PortConfig& config) {
  std::unique_ptr<Port> port(new Port);
  port->config_ = config;
  if (config.ip.family != 4 && config.ip.family != 6) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("port {}: it has no IP address", config.device));
  }
  if (const int most = config.ip.family == 4 ? 32 : 128;
      config.prefix_bits < 1 || config.prefix_bits > most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("port {}: prefix length {} must be 1 to {}", config.device,
                            config.prefix_bits, most));
  }
  if (config.vlan_id && (*config.vlan_id < 1 || *config.vlan_id > 4094)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("port {}: VLAN {} must be 1 to 4094", config.device, *config.vlan_id));
  }
  for (const std::uint16_t descriptors : {config.rx_descriptors, config.tx_descriptors}) {
    if (descriptors < 32 || descriptors > 8192) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("port {}: {} descriptors, must be 32 to 8192", config.device, descriptors));
    }
  }
  if (rte_eth_dev_get_port_by_name(config.device.c_str(), &port->id_) != 0) {
    return fail(ErrorCode::kNotFound,
                fmt::format("port {}: the EAL has no device of this name; it has: {}",
                            config.device, available_ports()));
  }

  rte_eth_dev_info info{};
  if (const int error = rte_eth_dev_info_get(port->id_, &info); error != 0) {
    return dpdk_error(config.device, "reading the device info failed", error);
  }
  port->row_ = &driver_row(info.driver_name != nullptr ? info.driver_name : "");
  DeviceFacts facts;
  facts.devargs = device_arguments(info);
  if (port->row_->limit == FrameLimitRule::kMemifBuffer) {
    if (auto sound = memif_is_sound(running_dpdk(), config.device); !sound) {
      return tl::unexpected(sound.error());
    }
    if (devarg(facts.devargs, "zero-copy").value_or("no") == "yes") {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("port {}: with zero-copy=yes, memif assumes that all memory is one "
                              "region and may send garbage: leave zero-copy=yes out",
                              config.device));
    }
    if (MemifEnd end = memif_end(facts.devargs); end.client)
      port->client_.emplace(std::move(end), config.device);
  }
  facts.max_rx_pktlen = info.max_rx_pktlen;
  facts.max_mtu = info.max_mtu;
  port->if_index_ = info.if_index;
  if (port->row_->limit == FrameLimitRule::kXdpChunk) {
    const std::uint32_t interface_queues = receive_queues(info.if_index);
    port->hashed_queues_ = interface_queues > 1 ? interface_queues : 0;
  }
  facts.kernel_mtu = kernel_mtu(info.if_index);
  facts.wanted_mtu = config.mtu;
  facts.vlan = config.vlan_id.has_value();
  auto limits = frame_limits(*port->row_, facts, config.device);
  if (!limits) return tl::unexpected(limits.error());
  port->limits_ = *limits;

  rte_ether_addr mac{};
  if (const int error = rte_eth_macaddr_get(port->id_, &mac); error != 0) {
    return dpdk_error(config.device, "reading the MAC address failed", error);
  }
  std::copy_n(mac.addr_bytes, port->mac_.size(), port->mac_.begin());
  port->socket_ = rte_eth_dev_socket_id(port->id_);
  return port;
}

Port::~Port() {
  stop();
  if (setup_.queues != 0) beside_no_interrupt([this] { rte_eth_dev_close(id_); });
}

/// Runs `work` so that no event of the driver is handled at the same time, if the driver frees
/// memory in its event handlers.
void Port::beside_no_interrupt(const std::function<void()>& work) const {
  if (row_->limit == FrameLimitRule::kMemifBuffer) {
    on_interrupt_thread(work);
  } else {
    work();
  }
}

Result<void> Port::configure(std::uint16_t queues, bool interrupts) {
  rte_eth_conf conf{};
  conf.rxmode.mq_mode = RTE_ETH_MQ_RX_NONE;
  conf.rxmode.offloads = setup_.rx_offloads;
  conf.txmode.offloads = setup_.tx_offloads;
  conf.intr_conf.rxq = interrupts ? 1 : 0;
  if (row_->sets_mtu) conf.rxmode.mtu = limits_.mtu;
  if (const int error = rte_eth_dev_configure(id_, queues, queues, &conf); error != 0) {
    return dpdk_error(
        config_.device,
        fmt::format("configuring {} queue pairs with MTU {} failed", queues, limits_.mtu).c_str(),
        error);
  }
  return {};
}

/// The header's length never varies, so frames are split after a fixed number of bytes. Longer
/// packets that are no chunks (acknowledgements, hellos) are split there too.
Result<void> Port::set_up_rx(std::uint16_t queue, const void* defaults, rte_mempool* pool,
                             rte_mempool* payload_pool) {
  rte_eth_rxconf rx = *static_cast<const rte_eth_rxconf*>(defaults);
  rx.offloads = setup_.rx_offloads;
  std::array<rte_eth_rxseg, 2> segments{};
  if (payload_pool != nullptr && row_->payload_split == PayloadSplit::kDevice) {
    segments[0].split.mp = pool;
    segments[0].split.length = split_header_bytes(config_.vlan_id.has_value(), config_.ip.family);
    segments[1].split.mp = payload_pool;
    rx.rx_seg = segments.data();
    rx.rx_nseg = static_cast<std::uint16_t>(segments.size());
    pool = nullptr;
  }
  const int error = rte_eth_rx_queue_setup(id_, queue, setup_.rx_descriptors,
                                           static_cast<unsigned>(socket_), &rx, pool);
  const std::uint32_t interface_mtu = error != 0 ? kernel_mtu(if_index_) : 0;
  if (row_->limit == FrameLimitRule::kXdpChunk && interface_mtu > kEveryDriverMtu) {
    std::array<char, IF_NAMESIZE> name{};
    if_indextoname(if_index_, name.data());
    return fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "port {}: setting up the rx queue failed: {} ({}). The MTU of {} is {}, but XDP works "
            "only up to {}, with some NICs only below that, and mtu in [[port]] does not change "
            "this. Run: ip link set dev {} mtu {} (or less; for a veth at both ends)",
            config_.device, rte_strerror(-error), error, name.data(), interface_mtu, xdp_max_mtu(),
            name.data(), xdp_max_mtu()));
  }
  if (error != 0) {
    return dpdk_error(config_.device,
                      rx.rx_nseg != 0 ? "setting up the rx queue with payloads in GPU memory failed"
                                      : "setting up the rx queue failed",
                      error);
  }
  return {};
}

Result<void> Port::start(std::span<rte_mempool* const> pools, std::uint16_t base_udp_port,
                         std::span<rte_mempool* const> payload_pools) {
  const auto queues = static_cast<std::uint16_t>(pools.size());
  rte_eth_dev_info info{};
  if (const int error = rte_eth_dev_info_get(id_, &info); error != 0) {
    return dpdk_error(config_.device, "reading the device info failed", error);
  }
  if (queues == 0 || queues > info.max_rx_queues || queues > info.max_tx_queues) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "port {}: {} lanes need one queue pair each, but the device has {} rx and {} tx queues",
            config_.device, queues, info.max_rx_queues, info.max_tx_queues));
  }
  if (queues > 1 && row_->steering == Steering::kNone) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("port {}: driver {} cannot steer packets to lanes by UDP port, so it "
                            "supports 1 lane, not {}",
                            config_.device, row_->driver, queues));
  }
  for (rte_mempool* pool : pools) {
    const std::uint32_t room = rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
    if (room < limits_.buffer_bytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("port {}: mbufs with room for {} bytes are too small: {} are needed",
                              config_.device, room, limits_.buffer_bytes));
    }
  }

  if (!payload_pools.empty()) {
    if (const std::string why = why_no_payload_split(config_.device); !why.empty()) {
      return fail(ErrorCode::kUnsupported, why);
    }
    setup_.splits_payload = true;
    if (row_->payload_split == PayloadSplit::kDevice) {
      setup_.rx_offloads |= RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT | RTE_ETH_RX_OFFLOAD_SCATTER;
      setup_.tx_offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    }
  }
  if (config_.ip.family == 6) {
    if (auto ready = prepare_ipv6(info.tx_offload_capa); !ready) return ready;
  }
  interrupts_ = row_->rx_interrupts;
  auto configured = configure(queues, interrupts_);
  if (!configured && interrupts_) {
    // The only way to learn that a driver has no interrupts is that it refuses them.
    interrupts_ = false;
    configured = configure(queues, false);
  }
  if (!configured) return configured;
  setup_.queues = joined_told_ = queues;
  first_pool_ = pools[0];

  setup_.rx_descriptors = config_.rx_descriptors;
  setup_.tx_descriptors = config_.tx_descriptors;
  if (const int error =
          rte_eth_dev_adjust_nb_rx_tx_desc(id_, &setup_.rx_descriptors, &setup_.tx_descriptors);
      error != 0) {
    return dpdk_error(config_.device, "adjusting the number of descriptors failed", error);
  }
  // A port of the kernel's sockets has one queue here, since it cannot steer.
  const bool is_xdp = row_->limit == FrameLimitRule::kXdpChunk;
  const std::vector<int> sockets_before = is_xdp ? xdp_sockets() : std::vector<int>{};
  rte_eth_txconf tx = info.default_txconf;
  tx.offloads = setup_.tx_offloads;
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    auto rx = set_up_rx(queue, &info.default_rxconf, pools[queue],
                        payload_pools.empty() ? nullptr : payload_pools[queue]);
    if (!rx) return rx;
    const int tx_error = rte_eth_tx_queue_setup(id_, queue, setup_.tx_descriptors,
                                                static_cast<unsigned>(socket_), &tx);
    if (tx_error != 0)
      return dpdk_error(config_.device, "setting up the tx queue failed", tx_error);
  }
  if (is_xdp) {
    wake_socket_ = only_new(sockets_before, xdp_sockets());
  } else if (row_->limit == FrameLimitRule::kPacketFrame) {
    wake_socket_ = packet_socket_of(if_index_);
  }
  if (client_ && !client_->may_start()) return {};
  if (const int error = rte_eth_dev_start(id_); error != 0) {
    return dpdk_error(config_.device, "starting the device failed", error);
  }
  started_ = true;
  look_at_queues();
  if (config_.ip.family == 6) {
    hear_groups();
    if (auto checked = check_udp_sum(*pools[0]); !checked) return checked;
  }
  running_.store(true, std::memory_order_release);
  if (queues > 1 && row_->steering == Steering::kFlow) return steer(queues, base_udp_port);
  return {};
}

Result<void> Port::steer(std::uint16_t queues, std::uint16_t base_udp_port) {
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    rte_flow_attr attr{};
    attr.ingress = 1;
    rte_flow_item_udp udp{};
    udp.hdr.dst_port = rte_cpu_to_be_16(static_cast<std::uint16_t>(base_udp_port + queue));
    rte_flow_item_udp udp_mask{};
    udp_mask.hdr.dst_port = 0xffff;
    rte_flow_item pattern[5] = {};
    std::size_t items = 0;
    pattern[items++].type = RTE_FLOW_ITEM_TYPE_ETH;
    if (config_.vlan_id) pattern[items++].type = RTE_FLOW_ITEM_TYPE_VLAN;
    pattern[items++].type =
        config_.ip.family == 4 ? RTE_FLOW_ITEM_TYPE_IPV4 : RTE_FLOW_ITEM_TYPE_IPV6;
    pattern[items].type = RTE_FLOW_ITEM_TYPE_UDP;
    pattern[items].spec = &udp;
    pattern[items++].mask = &udp_mask;
    pattern[items].type = RTE_FLOW_ITEM_TYPE_END;
    rte_flow_action_queue to_queue{};
    to_queue.index = queue;
    rte_flow_action actions[2] = {};
    actions[0].type = RTE_FLOW_ACTION_TYPE_QUEUE;
    actions[0].conf = &to_queue;
    actions[1].type = RTE_FLOW_ACTION_TYPE_END;
    rte_flow_error error{};
    if (rte_flow_create(id_, &attr, pattern, actions, &error) == nullptr) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("port {}: its driver refuses to steer UDP port {} to queue {} ({}): "
                              "set lanes.count = 1",
                              config_.device, base_udp_port + queue, queue,
                              error.message != nullptr ? error.message : "it gives no reason"));
    }
  }
  setup_.flow_steering = true;
  return {};
}

void Port::stop() noexcept {
  running_.store(false, std::memory_order_release);
  if (!started_) return;
  started_ = false;
  // An error could not be acted on: the port is given up either way.
  beside_no_interrupt([this] { [[maybe_unused]] const int ignored = rte_eth_dev_stop(id_); });
}

bool Port::carries(const wire::MacAddress& neighbor, std::uint32_t ip_bytes) const {
  if (row_->limit != FrameLimitRule::kPacketFrame || if_index_ == 0) return true;
  const std::size_t header =
      wire::kEthernetBytes + (config_.vlan_id ? wire::kVlanBytes : std::size_t{0});
  return probe_frame(if_index_, mac_, neighbor, config_.vlan_id, header + ip_bytes) !=
         FrameVerdict::kTooLong;
}

std::uint16_t Port::receive(std::span<rte_mbuf*> out) const noexcept {
  return rte_eth_rx_burst(id_, 0, out.data(), static_cast<std::uint16_t>(out.size()));
}

std::uint16_t Port::transmit(std::span<rte_mbuf*> mbufs) const noexcept {
  return rte_eth_tx_burst(id_, 0, mbufs.data(), static_cast<std::uint16_t>(mbufs.size()));
}

std::string device_arguments(const rte_eth_dev_info& info) {
  const rte_devargs* devargs = info.device != nullptr ? rte_dev_devargs(info.device) : nullptr;
  return devargs != nullptr && devargs->args != nullptr ? devargs->args : "";
}

void close_all_ports() noexcept {
  std::uint16_t id = 0;
  RTE_ETH_FOREACH_DEV(id) { rte_eth_dev_close(id); }
}

}  // namespace gradwire::port
