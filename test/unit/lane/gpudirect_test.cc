// SPDX-License-Identifier: BSD-3-Clause
// Payloads in the memory of an emulated GPU, whose addresses the CPU may not touch (guard=1): two
// ranks over net_ring ports, which carry headers and payloads as they were sent, or over a wire
// that does what a NIC with buffer split does: it reads and writes GPU memory by itself, and cuts
// every frame behind as many bytes as a chunk's headers have, whatever it is.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>

#include "gpudirect_pair.h"

using namespace gradwire;
using namespace gradwire::lane;
using Catch::Matchers::Contains;
using namespace gradwire::lane::test;

namespace {

std::uint64_t dropped(const collective::ShardCounters& counters, wire::Drop drop) {
  return counters.drops[static_cast<std::size_t>(drop)];
}

}  // namespace

TEST_CASE("payloads stay in GPU memory from rank to rank, and the GPU reduces every chunk") {
  Gpu gpu;
  SplitWire wire;
  Pair pair(gpu, &wire);
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;
  const auto reduce = [&](std::uint64_t count, DataType datatype, RedOp redop) {
    chunks += pair.reduce(count, datatype, redop, 3 + chunks);
    bytes += count * element_bytes(datatype);
  };
  reduce(1, DataType::kFloat32, RedOp::kSum);
  reduce(100'003, DataType::kFloat32, RedOp::kAvg);
  reduce(50'001, DataType::kInt64, RedOp::kSum);
  reduce(20'011, DataType::kInt8, RedOp::kMax);
  const Totals result = pair.result();
  CHECK(result.gpu.chunks_reduced == chunks);
  // Loaded, reduced, stored: once each, but for chunks that had to wait in the output.
  CHECK(result.gpu.chunks_moved == 2 * chunks + result.shards.spills);
  if (result.shards.spills == 0) CHECK(result.gpu.bytes == 3 * bytes);
  CHECK(result.shards.copies == 0);
  // Hellos and acknowledgements were read from GPU memory, by its mapping.
  CHECK(wire.control_tails > 0);
  pair.ranks().leave_and_check();
}

TEST_CASE("an exchange of payloads in GPU memory loads every chunk and folds it, at both ends") {
  Gpu gpu;
  SplitWire wire;
  Pair pair(gpu, &wire, 1u << 20);
  const std::uint64_t chunks = pair.reduce(100'003, DataType::kFloat32, RedOp::kAvg, 3) +
                               pair.reduce(1, DataType::kFloat32, RedOp::kSum, 4);
  const Totals result = pair.result();
  CHECK(result.gpu.chunks_reduced == 2 * chunks);
  CHECK(result.gpu.chunks_moved == 2 * chunks);
  CHECK(result.shards.spills == 0);
  CHECK(result.shards.copies == 0);
  pair.ranks().leave_and_check();
}

TEST_CASE("direct ops of ports that put payloads into GPU memory go through the host's") {
  Gpu gpu;
  SplitWire wire;
  wire.lose_every = 7;
  Pair pair(gpu, &wire, 0, 64u << 10);
  pair.reduce(1, DataType::kFloat32, RedOp::kSum, 3);
  pair.reduce(1003, DataType::kBfloat16, RedOp::kAvg, 4);
  pair.reduce(4001, DataType::kInt64, RedOp::kMax, 5);
  const Totals result = pair.result();
  CHECK(result.shards.ops_direct == 2 * 3);
  CHECK(result.gpu.chunks_reduced >= 2 * 3);
  // Contributions were read from GPU memory, by its mapping.
  CHECK(wire.control_tails > 0);
  pair.ranks().leave_and_check();
}

// Between ranks that are no neighbors go contributions alone.
TEST_CASE("of a frame from a rank that is no neighbor the end is read from GPU memory") {
  Gpu gpu;
  SplitWire wire;
  Pair pair(gpu, &wire, 0, 64u << 10, 5);
  TwoRanks& ranks = pair.ranks();
  const auto send = [&](std::uint16_t from, std::uint16_t rank, std::uint64_t token) {
    wire::FrameAddresses addresses;
    addresses.source_mac = ranks.rank(0).datapath->ports()[0]->mac();
    addresses.destination_mac = ranks.rank(1).datapath->ports()[0]->mac();
    addresses.source_ip = ranks.ip_of(from);
    addresses.destination_ip = ranks.ip_of(1);
    addresses.source_port = addresses.destination_port = TwoRanks::kPort;
    const auto header = wire::FrameTemplate::make(addresses);
    REQUIRE(header);
    constexpr std::size_t kBytes = 16 * sizeof(float);
    constexpr std::size_t kPacket = wire::kHeaderBytes + kBytes;
    std::vector<std::byte> frame(header->bytes() + kPacket, std::byte{0x3f});
    header->write(frame.data(), kPacket);
    const std::span<std::byte> packet{frame.data() + header->bytes(), kPacket};
    wire::CommonHeader common;
    common.group_tag = wire::group_tag({0x1234, 1});
    common.from_rank = rank;
    common.token = token;
    common.packet_number = 1;
    wire::encode_contribution(packet.first<wire::kHeaderBytes>(), common,
                              {.op_seq = 1, .total_count = 16}, 0,
                              wire::crc32c(packet.subspan(wire::kHeaderBytes)));
    rte_mbuf* mbuf = rte_pktmbuf_alloc(ranks.rank(0).datapath->pools(0).packet());
    REQUIRE(mbuf != nullptr);
    std::memcpy(rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(frame.size())), frame.data(),
                frame.size());
    REQUIRE(rte_ring_enqueue(ranks.ports().from_a(), mbuf) == 0);
    ranks.round();
    ranks.round();
  };
  const auto counters = [&] {
    return ranks.rank(1).plan.shards[0].shard->status(ranks.now).counters;
  };
  const LaneCounters& lane = ranks.rank(1).datapath->lane(0).counters();
  const auto foreign = [&] {
    return read_counter(lane.drops[static_cast<std::size_t>(wire::Drop::kForeign)]);
  };
  const std::uint64_t before = foreign();
  // Rank 1 stands between ranks 0 and 2. Its check of the payload's CRC saw the bytes.
  send(3, 3, 0);
  CHECK(counters().early_packets == 1);
  CHECK(foreign() == before);
  // With another's token, or another's address, nobody reads it.
  send(4, 4, 1);
  send(3, 4, 0);
  send(5, 4, 0);
  CHECK(counters().early_packets == 1);
  CHECK(foreign() == before + 3);
  send(4, 4, 0);
  CHECK(counters().early_packets == 2);
  CHECK(foreign() == before + 3);
  ranks.leave_and_check();
}

TEST_CASE("frames that come as they were sent, and are the sender's too, are spilled, not copied") {
  Gpu gpu;
  Pair pair(gpu, nullptr);
  const std::uint64_t chunks = pair.reduce(30'001, DataType::kFloat32, RedOp::kSum, 9);
  const Totals result = pair.result();
  CHECK(result.gpu.chunks_reduced == chunks);
  CHECK(result.shards.spills > 0);
  CHECK(result.shards.copies == 0);
  pair.ranks().leave_and_check();
}

TEST_CASE("what the GPU finds to be corrupt is not applied, and comes again") {
  Gpu gpu;
  SplitWire wire;
  Pair pair(gpu, &wire);
  wire.corrupt_every = 13;
  wire.lose_every = 31;
  const std::uint64_t chunks = pair.reduce(60'000, DataType::kFloat32, RedOp::kSum, 5);
  const Totals result = pair.result();
  CHECK(wire.corrupted > 0);
  CHECK(dropped(result.shards, wire::Drop::kPayloadCrc) > 0);
  CHECK(dropped(result.shards, wire::Drop::kPayloadCrc) <= wire.corrupted);
  CHECK(result.shards.retransmissions > 0);
  CHECK(result.shards.copies == 0);
  CHECK(result.gpu.chunks_reduced == chunks);
  wire.corrupt_every = wire.lose_every = 0;
  pair.ranks().leave_and_check();
}

// Its end could not be gathered: who tries, counts that there was no buffer.
TEST_CASE("of a stranger's frame nothing is read from GPU memory") {
  Gpu gpu;
  SplitWire wire;
  Pair pair(gpu, &wire);
  TwoRanks& ranks = pair.ranks();
  pair.reduce(10'000, DataType::kFloat32, RedOp::kSum, 3);
  const LaneCounters& counters = ranks.rank(1).datapath->lane(0).counters();
  const auto dropped_by_lane = [&](wire::Drop why) {
    return read_counter(counters.drops[static_cast<std::size_t>(why)]);
  };
  const auto send = [&](const char* source, std::uint16_t port) {
    wire::FrameAddresses addresses;
    addresses.destination_mac = ranks.rank(1).datapath->ports()[0]->mac();
    addresses.source_ip = *wire::parse_ip(source);
    addresses.destination_ip = ranks.ip_of(1);
    addresses.source_port = addresses.destination_port = port;
    const auto header = wire::FrameTemplate::make(addresses);
    REQUIRE(header);
    rte_mbuf* head = rte_pktmbuf_alloc(ranks.rank(0).datapath->pools(0).packet());
    REQUIRE(head != nullptr);
    constexpr std::size_t kHeader = port::split_header_bytes(false, 4);
    const std::size_t tail_bytes = rte_pktmbuf_tailroom(head);  // more than is left behind a header
    std::vector<std::byte> bytes(kHeader);
    header->write(bytes.data(), kHeader - header->bytes() + tail_bytes);
    std::memcpy(rte_pktmbuf_append(head, kHeader), bytes.data(), kHeader);
    rte_mbuf* tail = rte_pktmbuf_alloc(ranks.rank(0).datapath->pools(0).packet());
    REQUIRE(tail != nullptr);
    REQUIRE(rte_pktmbuf_append(tail, static_cast<std::uint16_t>(tail_bytes)) != nullptr);
    REQUIRE(rte_pktmbuf_chain(head, tail) == 0);
    REQUIRE(rte_ring_enqueue(ranks.ports().to_b(), head) == 0);
    ranks.round();
  };
  const std::uint64_t foreign = dropped_by_lane(wire::Drop::kForeign);
  send("10.0.0.66", TwoRanks::kPort);
  send("10.0.0.1", TwoRanks::kPort + 1);
  CHECK(dropped_by_lane(wire::Drop::kForeign) == foreign + 2);
  CHECK(dropped_by_lane(wire::Drop::kNoBuffer) == 0);
  // The neighbor's is.
  send("10.0.0.1", TwoRanks::kPort);
  CHECK(dropped_by_lane(wire::Drop::kNoBuffer) == 1);
  ranks.leave_and_check();
}

TEST_CASE("a GPU that fails aborts the group, and everything comes back") {
  Gpu gpu("guard=1,fail_every=20");
  SplitWire wire;
  Pair pair(gpu, &wire);
  AllReduceCase all_reduce(2, 1, 100'000, DataType::kFloat32, RedOp::kSum, 2, false);
  std::vector<void*> registered;
  for (std::uint16_t r = 0; r < 2; ++r) {
    const collective::OpSpec spec = all_reduce.spec(r, 1);
    for (void* memory : {const_cast<void*>(static_cast<const void*>(spec.inputs[0])),
                         static_cast<void*>(spec.outputs[0])}) {
      REQUIRE(gpu.device->register_host(memory, 400'000, "gradients"));
      registered.push_back(memory);
    }
    pair.ranks().post(r, all_reduce);
  }
  REQUIRE(pair.ranks().run_until([&] {
    return pair.ranks().count_notices(0, command::NoticeType::kGroupAborted) == 1 &&
           pair.ranks().count_notices(1, command::NoticeType::kGroupAborted) == 1;
  }));
  pair.ranks().leave_and_check();
  for (void* memory : registered) gpu.device->unregister_host(memory);
}

TEST_CASE("a payload pool lies in GPU memory, and gives everything back") {
  Gpu gpu("memory_mib=4");
  port::RingPorts rings("pool");
  REQUIRE(rings.made());
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<port::Port>> ports;
    port::PortConfig config;
    config.device = rings.a();
    config.ip = *wire::parse_ip("10.0.0.1");
    auto opened = port::Port::open(config);
    REQUIRE(opened);
    ports.push_back(std::move(*opened));
    auto made = port::PayloadPool::create({.name = "payloads", .mbufs = 1'000, .room = 2'048},
                                          *gpu.device, ports);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    CHECK_FALSE(gpu.gives(3));
    rte_mbuf* mbuf = rte_pktmbuf_alloc((*made)->mempool());
    REQUIRE(mbuf != nullptr);
    CHECK(RTE_MBUF_HAS_PINNED_EXTBUF(mbuf));
    std::byte* const cpu = (*made)->for_cpu(mbuf->buf_addr, 2'048);
    REQUIRE(cpu != nullptr);
    CHECK(cpu != mbuf->buf_addr);
    CHECK((*made)->for_cpu(mbuf, 1) == nullptr);
    rte_pktmbuf_free(mbuf);
    CHECK(rte_mempool_in_use_count((*made)->mempool()) == 0);
    // The name is taken; what was made before that shows is given back.
    const auto twice = port::PayloadPool::create({.name = "payloads", .mbufs = 100, .room = 2'048},
                                                 *gpu.device, ports);
    REQUIRE_FALSE(twice);
    CHECK_THAT(twice.error().message, Contains("payloads") && Contains("gpu_emu6"));
    made->reset();
    CHECK(gpu.gives(4));
  }
  const auto large =
      port::PayloadPool::create({.name = "large", .mbufs = 10'000, .room = 2'048}, *gpu.device, {});
  REQUIRE_FALSE(large);
  CHECK_THAT(large.error().message, Contains("gpu_emu6") && Contains("bytes"));
}

TEST_CASE("a CPU that reads a guarded GPU's memory is killed, so that these tests see it") {
  Gpu gpu;
  auto memory = gpu.device->allocate(4'096, 4'096);
  REQUIRE(memory);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(static_cast<int>(*static_cast<volatile std::byte*>(*memory)));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  gpu.device->free(*memory);
}

TEST_CASE("ports whose drivers put no payload into GPU memory say so") {
  port::RingPorts rings("says");
  CHECK(port::why_no_payload_split(rings.a()) == "");
  CHECK_THAT(port::why_no_payload_split("net_ring_none"), Contains("net_ring_none"));
  REQUIRE(rte_eal_hotplug_add("vdev", "net_null7", "") == 0);
  CHECK_THAT(port::why_no_payload_split("net_null7"), Contains("net_null7") && Contains("cannot"));
  port::PortConfig config;
  config.device = "net_null7";
  config.ip = *wire::parse_ip("10.0.0.1");
  auto port = port::Port::open(config);
  REQUIRE(port);
  auto pools = port::LanePools::create(
      {.buffer_bytes = 9'216, .packet_mbufs = 512, .control_mbufs = 64, .name_prefix = "says"});
  REQUIRE(pools);
  rte_mempool* pool = (*pools)->packet();
  const auto started = (*port)->start({&pool, 1}, 4791, {&pool, 1});
  REQUIRE_FALSE(started);
  CHECK_THAT(started.error().message, Contains("receives nothing"));
  port->reset();
  rte_eal_hotplug_remove("vdev", "net_null7");

  // Over IPv6 a driver has to compute checksums besides, since no CPU reads these payloads.
  config.device = rings.a();
  config.ip = *wire::parse_ip("fd00::1");
  auto over_ipv6 = port::Port::open(config);
  REQUIRE(over_ipv6);
  const auto without_sums = (*over_ipv6)->start({&pool, 1}, 4791, {&pool, 1});
  REQUIRE_FALSE(without_sums);
  CHECK_THAT(without_sums.error().message,
             Contains("over IPv6 a UDP checksum is needed") && Contains("gpu.staging = copy"));
}
