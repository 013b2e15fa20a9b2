// SPDX-License-Identifier: BSD-3-Clause
#include "port/port.h"

#include <poll.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

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
  CHECK_FALSE((*port)->takes_bursts(0));
  port->reset();
}

namespace {

/// Two ends of a memif link in this process, opened, with a socket and device numbers of their own.
struct MemifPair {
  MemifPair(int number, const std::string& name) : made(pools(name, 9216)) {
    const std::string arguments =
        "id=" + std::to_string(number) + ",socket-abstract=yes,socket=@gradwire_port_test_" + name;
    const std::string a = "net_memif" + std::to_string(number);
    const std::string b = "net_memif" + std::to_string(number + 1);
    REQUIRE(rte_eal_hotplug_add("vdev", a.c_str(), ("role=server," + arguments).c_str()) == 0);
    REQUIRE(rte_eal_hotplug_add("vdev", b.c_str(), ("role=client," + arguments).c_str()) == 0);
    auto opened = Port::open(config_for(a));
    REQUIRE(opened);
    server = std::move(*opened);
    opened = Port::open(config_for(b));
    REQUIRE(opened);
    client = std::move(*opened);
  }
  void start(Port& port, std::size_t queues) const {
    const std::vector<rte_mempool*> each(queues, made->packet());
    REQUIRE(port.start(each, 4791));
  }
  std::unique_ptr<LanePools> made;
  std::unique_ptr<Port> server;
  std::unique_ptr<Port> client;
};

/// Looks after the port at made up times, as fast as its driver goes, until it says something.
std::string told(Port& port, TimeNs& now) {
  std::vector<std::uint64_t> rounds(2, 0);
  for (int i = 0; i < 5'000; ++i) {
    now += 100'000'000;
    for (std::uint64_t& each : rounds) each += 2;
    if (std::string text = port.tend(now, rounds); !text.empty()) return text;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

bool becomes(const Port& port, bool up) {
  for (int i = 0; i < 1'000 && port.takes_bursts(0) != up; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return port.takes_bursts(0) == up;
}

}  // namespace

TEST_CASE("a memif port's bursts are not called before its link is up, nor after it went down") {
  MemifPair link(8, "bursts");
  link.start(*link.server, 1);
  CHECK(link.server->is_running());
  CHECK_FALSE(link.server->takes_bursts(0));
  link.start(*link.client, 1);
  CHECK(becomes(*link.server, true));
  CHECK(becomes(*link.client, true));
  link.client.reset();
  CHECK(becomes(*link.server, false));
  CHECK(link.server->is_running());
}

TEST_CASE("a lane leaves a memif queue alone that the peer has not joined, and that is told") {
  MemifPair link(10, "joined");
  link.start(*link.server, 2);
  link.start(*link.client, 1);
  REQUIRE(becomes(*link.server, true));
  REQUIRE(becomes(*link.client, true));
  CHECK_FALSE(link.server->takes_bursts(1));
  CHECK(link.server->report().queues == 2);
  CHECK(link.server->report().joined_queues == 1);
  CHECK(link.client->report().joined_queues == 1);
  TimeNs now = 0;
  CHECK(told(*link.server, now).find("joins 1 of 2 queue pairs") != std::string::npos);
  CHECK(link.client->tend(now, {}).empty());

  // A peer with as many joins all, and what it joined before does not count.
  link.client.reset();
  REQUIRE(becomes(*link.server, false));
  const std::string again =
      "role=client,id=10,socket-abstract=yes,socket=@gradwire_port_test_joined";
  REQUIRE(rte_eal_hotplug_add("vdev", "net_memif19", again.c_str()) == 0);
  auto client = Port::open(config_for("net_memif19"));
  REQUIRE(client);
  link.start(**client, 2);
  REQUIRE(becomes(*link.server, true));
  CHECK(link.server->takes_bursts(1));
  CHECK((*client)->takes_bursts(1));
  CHECK(link.server->report().joined_queues == 2);
  CHECK(told(*link.server, now).find("joins all 2 queue pairs now") != std::string::npos);
}

namespace {

/// Sends a frame by a queue of `from`. @return whether `to`, which gets it, makes `fd` readable.
bool wakes(Port& from, Port& to, std::uint16_t queue, rte_mempool* pool, int fd) {
  rte_mbuf* frame = rte_pktmbuf_alloc(pool);
  REQUIRE(frame != nullptr);
  REQUIRE(rte_pktmbuf_append(frame, 64) != nullptr);
  // A client gives the server places to send to when it receives.
  std::array<rte_mbuf*, 4> got{};
  REQUIRE(rte_eth_rx_burst(to.id(), queue, got.data(), got.size()) == 0);
  REQUIRE(rte_eth_tx_burst(from.id(), queue, &frame, 1) == 1);
  pollfd readable{fd, POLLIN, 0};
  const bool woken = ::poll(&readable, 1, 0) == 1;
  REQUIRE(rte_eth_rx_burst(to.id(), queue, got.data(), got.size()) == 1);
  rte_pktmbuf_free(got[0]);
  std::uint64_t count = 0;
  [[maybe_unused]] const auto ignored = ::read(fd, &count, sizeof(count));
  return woken;
}

}  // namespace

TEST_CASE("a packet by memif wakes a lane that asked for it, and no other") {
  MemifPair link(14, "wakes");
  link.start(*link.server, 2);
  CHECK(link.server->enable_interrupt(0) == -1);  // Nobody is there.
  link.start(*link.client, 2);
  for (int connection = 0; connection < 2; ++connection) {
    INFO("connection " << connection);
    REQUIRE(becomes(*link.server, true));
    REQUIRE(becomes(*link.client, true));
    for (Port* to : {link.server.get(), link.client.get()}) {
      Port& from = to == link.server.get() ? *link.client : *link.server;
      INFO("to the " << (to == link.server.get() ? "server" : "client"));
      REQUIRE(to->can_interrupt());
      for (const std::uint16_t queue : {0, 1}) {
        const int fd = to->enable_interrupt(queue);
        REQUIRE(fd >= 0);
        CHECK(wakes(from, *to, queue, link.made->packet(), fd));
        to->disable_interrupt(queue);
        CHECK_FALSE(wakes(from, *to, queue, link.made->packet(), fd));
        CHECK(to->enable_interrupt(queue) == fd);
        CHECK(wakes(from, *to, queue, link.made->packet(), fd));
        to->disable_interrupt(queue);
      }
    }
    if (connection == 1) break;
    link.client.reset();
    REQUIRE(becomes(*link.server, false));
    CHECK(link.server->enable_interrupt(0) == -1);
    link.server->disable_interrupt(0);
    const std::string again =
        "role=client,id=14,socket-abstract=yes,socket=@gradwire_port_test_wakes";
    REQUIRE(rte_eal_hotplug_add("vdev", "net_memif20", again.c_str()) == 0);
    auto client = Port::open(config_for("net_memif20"));
    REQUIRE(client);
    link.client = std::move(*client);
    link.start(*link.client, 2);
  }
}

TEST_CASE("a memif client with more queues than its server has is told so, once") {
  MemifPair link(12, "refused");
  link.start(*link.server, 1);
  link.start(*link.client, 2);
  TimeNs now = 0;
  const std::string text = told(*link.client, now);
  CHECK_THAT(text, Catch::Contains("does not take this end with its 2 queue pairs") &&
                       Catch::Contains("lanes.count"));
  CHECK(link.client->report().link == "down: the memif server does not take this end");
  CHECK_FALSE(link.client->takes_bursts(0));
  // It tries again, and is quiet.
  std::vector<std::uint64_t> rounds(2, 100'000);
  for (int i = 0; i < 100; ++i) {
    now += 100'000'000;
    for (std::uint64_t& each : rounds) each += 2;
    CHECK(link.client->tend(now, rounds).empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
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
