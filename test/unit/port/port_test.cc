// SPDX-License-Identifier: BSD-3-Clause
#include "port/port.h"

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "port/pools.h"
#include "support/ring_ports.h"

using namespace gradwire;
using namespace gradwire::port;

namespace {

PortConfig config_for(const std::string& device) {
  PortConfig config;
  config.device = device;
  config.ip = *wire::parse_ip("10.0.0.1");
  return config;
}

std::unique_ptr<LanePools> pools(const std::string& name, std::uint32_t buffer_bytes = 9216) {
  auto made = LanePools::create({.buffer_bytes = buffer_bytes,
                                 .packet_mbufs = 512,
                                 .control_mbufs = 64,
                                 .name_prefix = name});
  REQUIRE(made);
  return std::move(*made);
}

}  // namespace

TEST_CASE("an unknown device is refused with the names of those that are there") {
  const RingPorts rings("known");
  REQUIRE(rings.made());
  const auto port = Port::open(config_for("net_ring_unknown"));
  REQUIRE_FALSE(port);
  CHECK(port.error().code == ErrorCode::kNotFound);
  CHECK(port.error().message.find("net_ring_unknown") != std::string::npos);
  CHECK(port.error().message.find(rings.a()) != std::string::npos);
}

TEST_CASE("a port's configuration has bounds") {
  const RingPorts rings("bounds");
  auto config = config_for(rings.a());
  config.rx_descriptors = 16;
  CHECK(Port::open(config).error().message.find("16") != std::string::npos);
  config = config_for(rings.a());
  config.vlan_id = 4095;
  CHECK(Port::open(config).error().message.find("4095") != std::string::npos);
  config = config_for(rings.a());
  config.prefix_bits = 33;
  CHECK_FALSE(Port::open(config));
  config.ip = *wire::parse_ip("fd00::1");
  CHECK(Port::open(config));
  config.prefix_bits = 129;
  CHECK_FALSE(Port::open(config));
  config = config_for(rings.a());
  config.ip = {};
  CHECK_FALSE(Port::open(config));
  config = config_for(rings.a());
  config.mtu = 70'000;
  CHECK_FALSE(Port::open(config));
}

TEST_CASE("a started port sends, receives and reports what was found") {
  RingPorts rings("pair");
  auto made = pools("pair");
  rte_mempool* pool = made->packet();
  auto a = Port::open(config_for(rings.a()));
  auto b = Port::open(config_for(rings.b()));
  REQUIRE(a);
  REQUIRE(b);
  REQUIRE((*a)->start({&pool, 1}, 4791));
  REQUIRE((*b)->start({&pool, 1}, 4791));
  CHECK((*a)->link_up());

  const PortReport report = (*a)->report();
  CHECK(report.driver == "net_ring");
  CHECK(report.mtu == kJumboMtu);
  CHECK(report.queues == 1);
  CHECK(report.rx_offloads == 0);
  CHECK(report.tx_offloads == 0);
  CHECK(report.link.substr(0, 2) == "up");

  rte_mbuf* frame = rte_pktmbuf_alloc(pool);
  REQUIRE(frame != nullptr);
  REQUIRE(rte_pktmbuf_append(frame, 64) != nullptr);
  REQUIRE(rte_eth_tx_burst((*a)->id(), 0, &frame, 1) == 1);
  std::array<rte_mbuf*, 4> received{};
  REQUIRE(rte_eth_rx_burst((*b)->id(), 0, received.data(), 4) == 1);
  // net_ring passes the mbuf itself.
  CHECK(received[0] == frame);
  rte_pktmbuf_free(received[0]);
}

TEST_CASE("mbufs that are too small and queues that are not there are refused") {
  const RingPorts rings("small");
  auto made = pools("small", 2048);
  rte_mempool* pool = made->packet();
  auto port = Port::open(config_for(rings.a()));
  REQUIRE(port);
  const auto started = (*port)->start({&pool, 1}, 4791);
  REQUIRE_FALSE(started);
  CHECK(started.error().message.find("9014") != std::string::npos);

  auto config = config_for(rings.a());
  config.mtu = 1500;
  auto fits = Port::open(config);
  REQUIRE(fits);
  const std::array<rte_mempool*, 2> two = {pool, pool};
  CHECK((*fits)->start(two, 4791).error().message.find("2 lanes") != std::string::npos);
}

TEST_CASE("a memif port takes its frame limit from bsize, and refuses zero-copy") {
  // Only its server side: opening a port connects nothing.
  REQUIRE(rte_eal_hotplug_add("vdev", "net_memif7",
                              "role=server,id=7,bsize=9216,socket-abstract=yes,"
                              "socket=@gradwire_port_test") == 0);
  auto port = Port::open(config_for("net_memif7"));
  REQUIRE(port);
  CHECK((*port)->row().driver == "net_memif");
  CHECK((*port)->limits().frame_bytes == 9216);
  CHECK((*port)->limits().mtu == 9202);
  auto made = pools("memif", 9216);
  rte_mempool* pool = made->packet();
  REQUIRE((*port)->start({&pool, 1}, 4791));
  CHECK_FALSE((*port)->link_up());  // nobody connected
  CHECK((*port)->report().link == "down");
  CHECK_FALSE((*port)->takes_bursts());
  port->reset();
}

TEST_CASE("a memif port's bursts are not called before its link is up, nor after it went down") {
  const std::string socket = "socket-abstract=yes,socket=@gradwire_burst_test";
  REQUIRE(rte_eal_hotplug_add("vdev", "net_memif8", ("role=server,id=8," + socket).c_str()) == 0);
  REQUIRE(rte_eal_hotplug_add("vdev", "net_memif9", ("role=client,id=8," + socket).c_str()) == 0);
  auto made = pools("bursts", 9216);
  rte_mempool* pool = made->packet();
  auto server = Port::open(config_for("net_memif8"));
  auto client = Port::open(config_for("net_memif9"));
  REQUIRE(server);
  REQUIRE(client);
  REQUIRE((*server)->start({&pool, 1}, 4791));
  CHECK((*server)->is_running());
  CHECK_FALSE((*server)->takes_bursts());

  const auto becomes = [](const Port& port, bool up) {
    for (int i = 0; i < 1'000 && port.takes_bursts() != up; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return port.takes_bursts() == up;
  };
  REQUIRE((*client)->start({&pool, 1}, 4791));
  CHECK(becomes(**server, true));
  CHECK(becomes(**client, true));
  client->reset();
  CHECK(becomes(**server, false));
  CHECK((*server)->is_running());
  server->reset();
}

TEST_CASE("a packet pool is LIFO where the stack ops are there") {
  auto made = pools("lifo");
  CHECK(made->ops() == "stack");
  rte_mbuf* first = rte_pktmbuf_alloc(made->packet());
  REQUIRE(first != nullptr);
  rte_pktmbuf_free(first);
  CHECK(rte_pktmbuf_alloc(made->packet()) == first);
  rte_pktmbuf_free(first);
}

TEST_CASE("the control pool has a cache, and however small what was asked for is there") {
  auto made = LanePools::create(
      {.buffer_bytes = 2048, .packet_mbufs = 256, .control_mbufs = 1, .name_prefix = "smallest"});
  REQUIRE(made);
  rte_mempool* pool = (*made)->control();
  CHECK(pool->cache_size != 0);
  // Others are in the caches of two threads.
  CHECK(pool->size >= 1 + 2 * pool->cache_size);
}

TEST_CASE("a pool is sized for all that may hold its mbufs") {
  const std::uint32_t mbufs = packet_pool_mbufs({.shards = 4,
                                                 .mbufs_per_shard = 100,
                                                 .descriptors = 512,
                                                 .driver_mbufs = 32,
                                                 .backlog = 256});
  CHECK(mbufs >= 4 * 100 + 512 + 32 + 256 + 32);
}
