// SPDX-License-Identifier: BSD-3-Clause
#include "port/driver_table.h"

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <catch2/catch.hpp>

using namespace gradwire;
using namespace gradwire::port;

TEST_CASE("an unknown driver is taken for a physical NIC, with the careful answers") {
  const DriverRow& row = driver_row("net_ixgbe");
  CHECK(row.driver.empty());
  CHECK_FALSE(row.rx_exclusive);
  CHECK_FALSE(row.tx_copies);
  CHECK(row.keeps_rx_mbufs);
  CHECK(row.sets_mtu);
  CHECK(row.steering == Steering::kFlow);
}

TEST_CASE("rows of the virtual drivers say what was found in them") {
  CHECK(driver_row("net_memif").rx_exclusive);
  CHECK(driver_row("net_memif").tx_copies);
  CHECK_FALSE(driver_row("net_memif").rx_interrupts);
  CHECK_FALSE(driver_row("net_ring").rx_exclusive);
  CHECK_FALSE(driver_row("net_ring").tx_copies);
  CHECK(driver_row("net_af_packet").tx_may_block);
  CHECK(driver_row("net_af_packet").tx_burst <= 16);
  CHECK(driver_row("net_af_packet").steering == Steering::kNone);
  CHECK_FALSE(driver_row("net_af_xdp").tx_copies);
  for (const char* name : {"net_memif", "net_af_xdp", "net_af_packet", "net_ring", "net_null"}) {
    const DriverRow& row = driver_row(name);
    CHECK(row.driver == name);
    CHECK(row.why[0] != '\0');
    CHECK(row.tx_burst >= 1);
  }
}

TEST_CASE("the clouds' drivers have no flow rules, and netvsc no VLANs") {
  for (const char* name : {"net_ena", "net_gve", "net_netvsc"}) {
    INFO(name);
    const DriverRow& row = driver_row(name);
    CHECK(row.driver == name);
    CHECK(row.steering == Steering::kNone);
    CHECK_FALSE(row.rx_exclusive);
    CHECK_FALSE(row.tx_copies);
    CHECK(std::string_view(row.why).find("one lane") != std::string_view::npos);
    DeviceFacts facts;
    facts.max_mtu = 1500;
    CHECK(frame_limits(row, facts, "port0").has_value());
    // What the device says of larger frames does not count if the driver cannot take them.
    facts.max_mtu = 8896;
    const auto large = frame_limits(row, facts, "port0");
    REQUIRE(large.has_value());
    CHECK(large->mtu == (row.max_mtu != 0 ? row.max_mtu : 8896));
    facts.wanted_mtu = 1501;
    const auto wanted = frame_limits(row, facts, "port0");
    CHECK(wanted.has_value() == (row.max_mtu == 0));
    if (!wanted) {
      CHECK_THAT(wanted.error().message,
                 Catch::Contains("the driver " + std::string(name) + " supports " +
                                 std::to_string(row.max_mtu) + " at most"));
    }
    facts.wanted_mtu = 0;
    facts.vlan = true;
    const auto tagged = frame_limits(row, facts, "port0");
    CHECK(tagged.has_value() == !row.moves_vlan);
    if (!tagged) CHECK_THAT(tagged.error().message, Catch::Contains("net_netvsc"));
  }
  CHECK(driver_row("net_ena").max_mtu == 0);
  CHECK(driver_row("net_gve").max_mtu == 1460);
  CHECK(driver_row("net_netvsc").max_mtu == 1500);
  CHECK(driver_row("net_ena").rx_interrupts);
  CHECK_FALSE(driver_row("net_gve").rx_interrupts);
  CHECK_FALSE(driver_row("net_netvsc").rx_interrupts);
  CHECK(driver_row("net_netvsc").moves_vlan);
}

TEST_CASE("devargs are found by their whole key") {
  CHECK(devarg("role=server,bsize=9216,id=0", "bsize") == "9216");
  CHECK(devarg("bsize=9216", "bsize") == "9216");
  CHECK(devarg("xbsize=1,bsize=2", "bsize") == "2");
  CHECK(devarg("bsize=", "bsize") == "");
  CHECK_FALSE(devarg("role=server", "bsize"));
  CHECK_FALSE(devarg("", "bsize"));
  CHECK_FALSE(devarg("bsize", "bsize"));
}

TEST_CASE("a memif frame is limited by bsize, not by what dev_info says") {
  const DriverRow& row = driver_row("net_memif");
  DeviceFacts facts;
  facts.max_rx_pktlen = 1518;
  facts.max_mtu = 65535;
  facts.devargs = "role=client,bsize=9216";
  auto limits = frame_limits(row, facts, "net_memif0");
  REQUIRE(limits);
  CHECK(limits->frame_bytes == 9216);
  CHECK(limits->mtu == 9202);
  CHECK(limits->buffer_bytes == 9216);

  facts.vlan = true;
  CHECK(frame_limits(row, facts, "net_memif0")->mtu == 9198);

  facts.vlan = false;
  facts.devargs = "role=client";
  CHECK(frame_limits(row, facts, "net_memif0")->frame_bytes == 2048);

  facts.wanted_mtu = 9000;
  limits = frame_limits(row, facts, "net_memif0");
  REQUIRE_FALSE(limits);
  CHECK(limits.error().code == ErrorCode::kInvalidArgument);
  CHECK(limits.error().message.find("bsize=9014") != std::string::npos);

  facts.devargs = "bsize=9216";
  limits = frame_limits(row, facts, "net_memif0");
  REQUIRE(limits);
  CHECK(limits->mtu == 9000);
  CHECK(limits->frame_bytes == 9014);
  CHECK(limits->buffer_bytes == 9216);  // the peer may send more than we do
}

TEST_CASE("an af_packet frame is limited by its ring slot and by the interface's MTU") {
  const DriverRow& row = driver_row("net_af_packet");
  DeviceFacts facts;
  facts.kernel_mtu = 1500;
  auto limits = frame_limits(row, facts, "eth_af_packet0");
  REQUIRE(limits);
  CHECK(limits->mtu == 1500);
  CHECK(limits->buffer_bytes == 2048 - 32);

  facts.kernel_mtu = 9000;
  CHECK(frame_limits(row, facts, "eth_af_packet0")->mtu == 2048 - 66 - 14);
  facts.devargs = "iface=veth0,framesz=16384,blocksz=32768";
  CHECK(frame_limits(row, facts, "eth_af_packet0")->mtu == 9000);

  facts.wanted_mtu = 9100;
  limits = frame_limits(row, facts, "eth_af_packet0");
  REQUIRE_FALSE(limits);
  CHECK(limits.error().message.find("9100") != std::string::npos);
  CHECK(limits.error().message.find("framesz=16384 and blocksz=16384") != std::string::npos);

  facts.wanted_mtu = 0;
  facts.devargs = "framesz=64";
  CHECK_FALSE(frame_limits(row, facts, "eth_af_packet0"));
  facts.devargs = "framesz=2032";
  limits = frame_limits(row, facts, "eth_af_packet0");
  REQUIRE_FALSE(limits);
  CHECK(limits.error().message.find("does not divide blocksz=4096") != std::string::npos);
}

TEST_CASE("an AF_XDP frame and all that is before it fit one page") {
  const DriverRow& row = driver_row("net_af_xdp");
  DeviceFacts facts;
  facts.kernel_mtu = 1500;
  auto limits = frame_limits(row, facts, "net_af_xdp0");
  REQUIRE(limits);
  CHECK(limits->mtu == 1500);
  CHECK(limits->buffer_bytes == 2048);
  facts.kernel_mtu = 9000;
  limits = frame_limits(row, facts, "net_af_xdp0");
  REQUIRE(limits);
  CHECK(rte_mempool_calc_obj_size(sizeof(rte_mbuf) + RTE_PKTMBUF_HEADROOM + limits->buffer_bytes, 0,
                                  nullptr) <= 4096);
  CHECK(limits->mtu == xdp_max_mtu());
  CHECK(limits->mtu > 3'300);
  CHECK(limits->frame_bytes + 256 <= limits->buffer_bytes);
}

TEST_CASE("an MTU that no full acknowledgement fits is refused, configured or found") {
  const DriverRow& row = driver_row("net_af_packet");
  DeviceFacts facts;
  facts.kernel_mtu = 1280;
  CHECK(frame_limits(row, facts, "eth_af_packet0")->mtu == 1280);
  facts.kernel_mtu = 1279;
  auto limits = frame_limits(row, facts, "eth_af_packet0");
  REQUIRE_FALSE(limits);
  CHECK(limits.error().message.find("its MTU of 1279 is too small for a full") !=
        std::string::npos);
  facts.kernel_mtu = 1500;
  facts.wanted_mtu = 600;
  limits = frame_limits(row, facts, "eth_af_packet0");
  REQUIRE_FALSE(limits);
  CHECK(limits.error().message.find("600") != std::string::npos);
}

TEST_CASE("virtio's mbufs have room for what its driver counts to a frame") {
  const DriverRow& row = driver_row("net_virtio");
  CHECK(row.driver == "net_virtio");
  DeviceFacts facts;
  facts.max_mtu = 9500;
  facts.wanted_mtu = 9000;
  const auto limits = frame_limits(row, facts, "0000:00:13.0");
  REQUIRE(limits);
  // Ethernet's header, a VLAN tag, and virtio's own header with merged buffers.
  CHECK(limits->buffer_bytes >= 9000 + 14 + 4 + 12);
}

TEST_CASE("a NIC gets the MTU that was asked for, or a jumbo one, or its own largest") {
  const DriverRow& row = driver_row("net_ice");
  DeviceFacts facts;
  facts.max_mtu = 9702;
  facts.max_rx_pktlen = 9728;
  CHECK(frame_limits(row, facts, "0000:01:00.0")->mtu == 9000);
  facts.wanted_mtu = 9702;
  CHECK(frame_limits(row, facts, "0000:01:00.0")->mtu == 9702);
  facts.wanted_mtu = 9703;
  CHECK_FALSE(frame_limits(row, facts, "0000:01:00.0"));
  facts.wanted_mtu = 0;
  facts.max_mtu = 65535;
  facts.max_rx_pktlen = 1518;
  CHECK(frame_limits(row, facts, "0000:01:00.0")->mtu == 1500);
}
