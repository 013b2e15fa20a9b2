// SPDX-License-Identifier: BSD-3-Clause
// Who computes UDP checksums over IPv6. No driver without hardware offers to, so here net_ring
// stands in for one: DPDK's calls that tell a driver's abilities, and set them up, are those below,
// which pass everything on and add the offer to the ports that a test names.
#include "port/port.h"

#include <dlfcn.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "port/pools.h"
#include "support/ring_ports.h"

using namespace gradwire;
using namespace gradwire::port;

namespace {

/// What the port `id` does besides what net_ring does.
struct StandIn {
  int id = -1;
  eth_tx_prep_t prepare = nullptr;
};
StandIn stand_in;

struct Seen {
  int times = 0;
  std::uint64_t marks = 0;
  std::uint64_t l2_bytes = 0;
  std::uint64_t l3_bytes = 0;
  std::uint32_t bytes = 0;
  wire::FrameKind kind = wire::FrameKind::kOther;
  wire::IpAddress source;
};
Seen driver_saw;

void look_at(rte_mbuf* frame) {
  wire::FrameView view;
  CHECK(wire::parse_frame({rte_pktmbuf_mtod(frame, const std::byte*), frame->pkt_len}, view) ==
        wire::Drop::kNone);
  driver_saw = {driver_saw.times + 1, frame->ol_flags, frame->l2_len, frame->l3_len,
                frame->pkt_len,       view.kind,       view.source_ip};
}

std::uint16_t takes(void*, rte_mbuf** frames, std::uint16_t count) {
  for (std::uint16_t i = 0; i < count; ++i) look_at(frames[i]);
  return count;
}

std::uint16_t refuses(void*, rte_mbuf** frames, std::uint16_t count) {
  if (count > 0) look_at(frames[0]);
  rte_errno = ENOTSUP;
  return 0;
}

template <typename Function>
Function* real(const char* name, Function* /*of this type*/) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  REQUIRE(found != nullptr);
  return found;
}

}  // namespace

extern "C" {

int rte_eth_dev_info_get(std::uint16_t id, rte_eth_dev_info* info) {
  const int error = real("rte_eth_dev_info_get", &rte_eth_dev_info_get)(id, info);
  if (id == stand_in.id) info->tx_offload_capa |= RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
  return error;
}

int rte_eth_dev_configure(std::uint16_t id, std::uint16_t rx, std::uint16_t tx,
                          const rte_eth_conf* wanted) {
  rte_eth_conf conf = *wanted;
  if (id == stand_in.id) conf.txmode.offloads &= ~std::uint64_t{RTE_ETH_TX_OFFLOAD_UDP_CKSUM};
  return real("rte_eth_dev_configure", &rte_eth_dev_configure)(id, rx, tx, &conf);
}

int rte_eth_tx_queue_setup(std::uint16_t id, std::uint16_t queue, std::uint16_t descriptors,
                           unsigned socket, const rte_eth_txconf* wanted) {
  rte_eth_txconf conf = *wanted;
  if (id == stand_in.id) conf.offloads &= ~std::uint64_t{RTE_ETH_TX_OFFLOAD_UDP_CKSUM};
  return real("rte_eth_tx_queue_setup", &rte_eth_tx_queue_setup)(id, queue, descriptors, socket,
                                                                 &conf);
}

int rte_eth_dev_start(std::uint16_t id) {
  const int error = real("rte_eth_dev_start", &rte_eth_dev_start)(id);
  // Without one, what DPDK gives a driver that has none stays: nothing, or, from some release on, a
  // function that takes all.
  if (id == stand_in.id && stand_in.prepare != nullptr) {
    rte_eth_fp_ops[id].tx_pkt_prepare = stand_in.prepare;
  }
  return error;
}

}  // extern "C"

namespace {

/// A port of that address, started.
class Started {
 public:
  Started(const std::string& name, const char* ip, eth_tx_prep_t prepare, bool vlan = false)
      : rings_(name) {
    PortConfig config;
    config.device = rings_.a();
    config.ip = *wire::parse_ip(ip);
    if (vlan) config.vlan_id = 7;
    auto opened = Port::open(config);
    REQUIRE(opened);
    port_ = std::move(*opened);
    auto pools = LanePools::create(
        {.buffer_bytes = 9216, .packet_mbufs = 512, .control_mbufs = 64, .name_prefix = name});
    REQUIRE(pools);
    pools_ = std::move(*pools);
    stand_in = {port_->id(), prepare};
    driver_saw = {};
    rte_mempool* pool = pools_->packet();
    const unsigned before = rte_mempool_avail_count(pool);
    started_ = port_->start({&pool, 1}, 4791);
    CHECK(rte_mempool_avail_count(pool) == before);
  }
  ~Started() { stand_in = {}; }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  [[nodiscard]] const Port& port() const { return *port_; }
  [[nodiscard]] const Result<void>& started() const { return started_; }

 private:
  RingPorts rings_;
  std::unique_ptr<LanePools> pools_;
  std::unique_ptr<Port> port_;
  Result<void> started_;
};

}  // namespace

TEST_CASE("a driver that offers UDP checksums and refuses them over IPv6 is not asked again") {
  const Started refused("ip6refuse", "fd00::1", refuses);
  REQUIRE(refused.started());
  CHECK(driver_saw.times == 1);
  CHECK(refused.port().udp_sum() == wire::UdpSum::kCpu);
  CHECK(refused.port().report().udp_sum_refusal == "Operation not supported");
  CHECK(refused.port().is_running());
  // It was asked as a lane asks.
  CHECK(driver_saw.marks == (RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_UDP_CKSUM));
  CHECK(driver_saw.l2_bytes == wire::kEthernetBytes);
  CHECK(driver_saw.l3_bytes == wire::kIpv6Bytes);
  CHECK(driver_saw.kind == wire::FrameKind::kUdp);
  CHECK(driver_saw.source == *wire::parse_ip("fd00::1"));
}

TEST_CASE("a driver that computes UDP checksums over IPv6 does so, with a VLAN tag too") {
  {
    const Started plain("ip6takes", "fd00::1", takes);
    REQUIRE(plain.started());
    CHECK(driver_saw.times == 1);
    CHECK(plain.port().udp_sum() == wire::UdpSum::kDevice);
    CHECK(plain.port().report().udp_sum_refusal.empty());
  }
  const Started tagged("ip6vlan", "fd00::1", takes, true);
  REQUIRE(tagged.started());
  CHECK(tagged.port().udp_sum() == wire::UdpSum::kDevice);
  CHECK(driver_saw.l2_bytes == wire::kEthernetBytes + wire::kVlanBytes);
}

TEST_CASE("a driver that cannot be asked is believed, and over IPv4 none is asked") {
  {
    const Started believed("ip6noprep", "fd00::1", nullptr);
    REQUIRE(believed.started());
    CHECK(believed.port().udp_sum() == wire::UdpSum::kDevice);
  }
  const Started ipv4("ip4refuse", "10.0.0.1", refuses);
  REQUIRE(ipv4.started());
  CHECK(driver_saw.times == 0);
  CHECK(ipv4.port().udp_sum() == wire::UdpSum::kCpu);
  CHECK(ipv4.port().report().udp_sum_refusal.empty());
}
