// SPDX-License-Identifier: BSD-3-Clause
#include "lane/tx_queue.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "port/pools.h"
#include "port/port.h"
#include "support/ring_ports.h"

using namespace gradwire;
using namespace gradwire::lane;

namespace {

struct Fixture {
  explicit Fixture(const std::string& name) : rings(name, 1, 64) {
    auto made = port::LanePools::create(
        {.buffer_bytes = 9216, .packet_mbufs = 1024, .control_mbufs = 64, .name_prefix = name});
    REQUIRE(made);
    pools = std::move(*made);
    port::PortConfig config;
    config.device = rings.a();
    config.ip = *wire::parse_ip("10.0.0.1");
    auto opened = port::Port::open(config);
    REQUIRE(opened);
    port = std::move(*opened);
    rte_mempool* pool = pools->packet();
    REQUIRE(port->start({&pool, 1}, 4791));
    queue = TxQueue(port->id(), 0, 32);
  }
  ~Fixture() {
    queue.clear();
    rings.drain();
  }

  rte_mbuf* frame(std::uint16_t bytes = 100) {
    rte_mbuf* made = rte_pktmbuf_alloc(pools->packet());
    REQUIRE(made != nullptr);
    REQUIRE(rte_pktmbuf_append(made, bytes) != nullptr);
    return made;
  }
  std::vector<rte_mbuf*> arrived() {
    std::vector<rte_mbuf*> out;
    void* object = nullptr;
    while (rte_ring_dequeue(rings.to_b(), &object) == 0) {
      out.push_back(static_cast<rte_mbuf*>(object));
      rte_pktmbuf_free(out.back());
    }
    return out;
  }

  std::unique_ptr<port::LanePools> pools;
  port::RingPorts rings;
  std::unique_ptr<port::Port> port;
  TxQueue queue;
  LaneCounters counters;
  TxTrace trace{64};
};

}  // namespace

TEST_CASE("frames leave in order and are counted") {
  Fixture fixture("txorder");
  std::vector<rte_mbuf*> sent;
  for (int i = 0; i < 50; ++i) {
    sent.push_back(fixture.frame());
    fixture.queue.push(sent.back());
  }
  CHECK(fixture.queue.room() == TxQueue::kCapacity - 50);
  CHECK(fixture.queue.flush(0, true, fixture.counters, fixture.trace));
  CHECK(fixture.queue.empty());
  CHECK(fixture.arrived() == sent);
  CHECK(fixture.counters.tx_packets == 50);
  CHECK(fixture.counters.tx_bytes == 5'000);
  std::uint64_t traced = 0;
  for (const TxTrace::Burst& burst : fixture.trace.bursts()) traced += burst.bytes;
  CHECK(traced == 5'000);
  CHECK(fixture.counters.tx_refused == 0);
}

TEST_CASE("what a full port refuses waits, in order, round the end of the backlog") {
  Fixture fixture("txfull");
  std::vector<rte_mbuf*> sent;
  std::vector<rte_mbuf*> arrived;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 60 && fixture.queue.room() != 0; ++i) {
      sent.push_back(fixture.frame());
      fixture.queue.push(sent.back());
    }
    fixture.queue.flush(round, true, fixture.counters, fixture.trace);
    // The ring has 63 places; half of what is in it is taken out each round.
    for (int i = 0; i < 30; ++i) {
      void* object = nullptr;
      if (rte_ring_dequeue(fixture.rings.to_b(), &object) != 0) break;
      arrived.push_back(static_cast<rte_mbuf*>(object));
      rte_pktmbuf_free(arrived.back());
    }
  }
  CHECK(fixture.counters.tx_refused > 0);
  while (!fixture.queue.empty()) {
    fixture.queue.flush(100, true, fixture.counters, fixture.trace);
    const auto more = fixture.arrived();
    arrived.insert(arrived.end(), more.begin(), more.end());
  }
  const auto rest = fixture.arrived();
  arrived.insert(arrived.end(), rest.begin(), rest.end());
  CHECK(arrived == sent);
  CHECK(fixture.counters.tx_dropped == 0);
}

TEST_CASE("a port that takes nothing for long loses its backlog, not the mbufs") {
  Fixture fixture("txstall");
  const unsigned available = rte_mempool_avail_count(fixture.pools->packet());
  for (int i = 0; i < 100; ++i) fixture.queue.push(fixture.frame());
  fixture.queue.flush(0, true, fixture.counters, fixture.trace);  // 63 go
  CHECK_FALSE(fixture.queue.flush(1'000, true, fixture.counters, fixture.trace));
  CHECK_FALSE(fixture.queue.flush(TxQueue::kStall, true, fixture.counters, fixture.trace));
  CHECK_FALSE(fixture.queue.empty());
  CHECK_FALSE(fixture.queue.flush(1'000 + TxQueue::kStall, true, fixture.counters, fixture.trace));
  CHECK(fixture.queue.empty());
  CHECK(fixture.counters.tx_dropped == 37);
  (void)fixture.arrived();
  CHECK(rte_mempool_avail_count(fixture.pools->packet()) == available);
}

TEST_CASE("a port whose link is down is not asked, and what waits goes when the link is up") {
  Fixture fixture("txdown");
  for (int i = 0; i < 10; ++i) fixture.queue.push(fixture.frame());
  CHECK_FALSE(fixture.queue.flush(0, false, fixture.counters, fixture.trace));
  CHECK(fixture.arrived().empty());
  CHECK(fixture.counters.tx_refused == 10);
  CHECK(fixture.queue.flush(1'000, true, fixture.counters, fixture.trace));
  CHECK(fixture.arrived().size() == 10);
  CHECK(fixture.counters.tx_packets == 10);
}

TEST_CASE(
    "a port that takes nothing is asked seldom after a while, and goes on when it takes some") {
  Fixture fixture("txslow");
  for (int i = 0; i < 100; ++i) fixture.queue.push(fixture.frame());
  fixture.queue.flush(0, true, fixture.counters, fixture.trace);  // 63 go
  constexpr TimeNs kRound = 1'000;
  constexpr TimeNs kFor = 20'000'000;
  for (TimeNs now = kRound; now < kFor; now += kRound) {
    CHECK_FALSE(fixture.queue.flush(now, true, fixture.counters, fixture.trace));
  }
  const std::uint64_t tries = fixture.counters.tx_refused / 32;  // a burst is offered
  CHECK(tries >= kFor / TxQueue::kRetry);
  CHECK(tries <= TxQueue::kSlow / kRound + kFor / TxQueue::kRetry + 2);
  CHECK(fixture.arrived().size() == 63);
  fixture.queue.flush(kFor + TxQueue::kRetry, true, fixture.counters, fixture.trace);
  CHECK(fixture.queue.empty());
  CHECK(fixture.arrived().size() == 37);
  CHECK(fixture.counters.tx_dropped == 0);
}

TEST_CASE("more than the backlog holds is freed, not leaked") {
  Fixture fixture("txover");
  const unsigned available = rte_mempool_avail_count(fixture.pools->packet());
  for (std::size_t i = 0; i < TxQueue::kCapacity + 5; ++i) fixture.queue.push(fixture.frame());
  CHECK(fixture.queue.room() == 0);
  CHECK(rte_mempool_avail_count(fixture.pools->packet()) == available - TxQueue::kCapacity);
  fixture.queue.clear();
  CHECK(rte_mempool_avail_count(fixture.pools->packet()) == available);
}

TEST_CASE("over IPv6 a NIC that computes checksums is asked for them, and no other port is") {
  Fixture fixture("txmarks");
  wire::FrameAddresses addresses;
  addresses.source_ip = *wire::parse_ip("fd00::1");
  addresses.destination_ip = *wire::parse_ip("fd00::2");
  addresses.vlan_id = 7;
  const auto header = wire::FrameTemplate::make(addresses);
  REQUIRE(header);
  const auto pushed = [&](TxCompletion completion, std::uint8_t protocol) {
    rte_mbuf* made =
        fixture.frame(static_cast<std::uint16_t>(header->bytes() + wire::kHeaderBytes));
    auto* bytes = rte_pktmbuf_mtod(made, std::byte*);
    header->write(bytes, wire::kHeaderBytes);
    bytes[18 + 6] = std::byte{protocol};
    // As it was sent before by such a NIC.
    made->ol_flags |= RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_UDP_CKSUM;
    TxQueue queue(fixture.port->id(), 0, 32, completion);
    queue.push(made);
    const std::uint64_t marks = made->ol_flags & (RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_UDP_CKSUM);
    const bool places = made->l2_len == 18 && made->l3_len == 40;
    queue.clear();
    return std::pair(marks, places);
  };
  using Kind = TxCompletion::Kind;
  constexpr std::uint64_t kAsked = RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_UDP_CKSUM;
  CHECK(pushed({Kind::kIpv6, wire::UdpSum::kDevice, true}, 17) == std::pair(kAsked, true));
  CHECK(pushed({Kind::kIpv6, wire::UdpSum::kDevice, true}, 58).first == 0);
  CHECK(pushed({Kind::kIpv6, wire::UdpSum::kCpu, true}, 17).first == 0);
  CHECK(pushed({Kind::kClearMarks, wire::UdpSum::kCpu, true}, 17).first == 0);
}
