// SPDX-License-Identifier: BSD-3-Clause
// What a chunk costs, without a clock: bytes copied by memcpy and memmove, and allocations, counted
// in two whole lanes while ops go through them. Without this test new copies and allocations would
// go unnoticed. Instructions are counted by instructions.py, which runs this program under
// callgrind.
//
// net_ring passes the very mbuf on, so it is shared when it arrives and the first reducing hop has
// to copy it (rule 2): one copy more than on ports whose buffers are exclusive.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "two_ranks.h"

namespace {

bool counting = false;
std::uint64_t bytes_copied = 0;
// Payloads, whole or in parts; smaller copies are header fields in a build without optimization.
constexpr std::size_t kLeastCounted = 128;
std::uint64_t allocations = 0;

void* allocate(std::size_t bytes) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// The linker redirects the libraries' calls to these (--wrap).
extern "C" {
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes);
void* __wrap_memmove(void* to, const void* from, std::size_t bytes);

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  if (counting && bytes >= kLeastCounted) bytes_copied += bytes;
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  if (counting && bytes >= kLeastCounted) bytes_copied += bytes;
  return __real_memmove(to, from, bytes);
}
}

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

using namespace gradwire;
using namespace gradwire::lane;
using gradwire::test::AllReduceCase;

namespace {

constexpr std::uint32_t kPayload = 1024;
constexpr std::uint64_t kChunks = 2'000;
constexpr int kFloodRounds = 100;
constexpr int kFloodBurst = 16;

/// Rounds until both clients have their completion. Callgrind counts this function alone.
[[gnu::noinline]] bool measured_rounds(TwoRanks& ranks) {
  return ranks.run_until_completed(2, 2'000);
}

/// One round of a lane that receives a burst of foreign frames. Callgrind counts this one too.
[[gnu::noinline]] void flooded_round(Lane& lane, TimeNs now) { lane.poll_once(now); }

constexpr int kEmptyRounds = 10'000;
constexpr int kCommands = 1'000;
constexpr int kSmallOps = 20;

/// Rounds of a lane that has nothing to do.
[[gnu::noinline]] void empty_rounds(Lane& lane, TimeNs& now) {
  for (int round = 0; round < kEmptyRounds; ++round) lane.poll_once(now += 20);
}

/// Ops of no elements: a command, handed out, posted, done when the other rank has said the same,
/// reported, answered. @return how many.
[[gnu::noinline]] int commands_alone(TwoRanks& ranks) {
  int done = 0;
  for (int i = 0; i < kCommands; ++i) {
    for (std::uint16_t r = 0; r < 2; ++r) {
      TwoRanks::Rank& rank = ranks.rank(r);
      ipc::CommandEntry command;
      command.request_id = 1'000 + rank.next_op++;
      command.group_handle = TwoRanks::kGroup;
      if (!rank.client->queue.push_command(command)) return done;
    }
    int open = 2;
    for (int round = 0; round < 10'000 && open > 0; ++round) {
      ranks.round(20);
      for (std::uint16_t r = 0; r < 2; ++r) open -= ranks.rank(r).client->completion() ? 1 : 0;
    }
    if (open > 0) return done;
    ++done;
  }
  return done;
}

/// An op of one packet each way, and its acknowledgements: rounds of both lanes.
[[gnu::noinline]] bool small_op(TwoRanks& ranks) {
  int open = 2;
  int left = 10;  // rounds after both have their completion, for what is still to be acknowledged
  for (int round = 0; round < 100'000 && left > 0; ++round) {
    ranks.round(200);
    for (std::uint16_t r = 0; r < 2; ++r) open -= ranks.rank(r).client->completion() ? 1 : 0;
    if (open == 0) --left;
  }
  return open == 0;
}

/// Two lanes with `idle` groups, `idle` clients at rank 0, and one group that is measured.
void cost_beside_idle(std::uint16_t idle) {
  TwoRanksOptions options;
  options.window_packets = 4;
  options.max_groups = static_cast<std::uint16_t>(idle + 1);
  TwoRanks ranks(options);
  std::vector<std::unique_ptr<command::TestClient>> clients;
  for (std::uint32_t id = 2; id < 2u + idle; ++id) {
    clients.push_back(std::make_unique<command::TestClient>(id));
    command::Request add;
    add.type = command::RequestType::kAddClient;
    add.client_id = id;
    add.client = &clients.back()->port;
    ranks.send(0, 0, add);
  }
  REQUIRE(ranks.form());
  for (std::uint16_t i = 0; i < idle; ++i) REQUIRE(ranks.form_another());
  for (int round = 0; round < 10'000; ++round) ranks.round(20);
  empty_rounds(ranks.rank(0).datapath->lane(0), ranks.now);
  ranks.rank(0).next_op = ranks.rank(1).next_op = 1;
  REQUIRE(commands_alone(ranks) == kCommands);
  std::vector<std::unique_ptr<AllReduceCase>> cases;
  for (int i = 0; i < kSmallOps; ++i) {
    cases.push_back(
        std::make_unique<AllReduceCase>(2, 1, 16, DataType::kFloat32, RedOp::kSum, 7 + i, false));
    for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, *cases.back(), TwoRanks::kGroup);
    REQUIRE(small_op(ranks));
    REQUIRE(cases.back()->wrong(0) == "");
    REQUIRE(cases.back()->wrong(1) == "");
  }
  for (std::uint32_t id = 2; id < 2u + idle; ++id) {
    command::Request remove;
    remove.type = command::RequestType::kRemoveClient;
    remove.client_id = id;
    ranks.send(0, 0, remove);
  }
  ranks.leave_and_check();
}

struct Cost {
  double copies = 0;  ///< of each payload byte, by all ranks together
  std::uint64_t allocations = 0;
};

/// One op of kChunks chunks, after one that is not counted. `creeping`: with a copy and an
/// allocation added to the lanes' rounds, which the test must find.
Cost cost_of_an_op(bool creeping, std::uint32_t payload = kPayload, bool payload_crc = true) {
  TwoRanksOptions options;
  options.payload_crc = payload_crc;
  options.payload_bytes = payload;
  if (payload > kPayload) options.mtu = 9000;
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  std::vector<std::unique_ptr<AllReduceCase>> cases;
  Cost cost;
  for (int op = 0; op < 2; ++op) {
    cases.push_back(std::make_unique<AllReduceCase>(2, 1, kChunks * payload / 4, DataType::kFloat32,
                                                    RedOp::kSum, 7 + op, false));
    for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, *cases.back());
    bytes_copied = allocations = 0;
    counting = op == 1;
    if (creeping && counting) {
      // Called by name: a compiler may leave out the allocation of a new-expression or a vector.
      const std::size_t bytes = kChunks * payload;
      void* from = ::operator new(bytes);
      void* to = ::operator new(bytes);
      std::memset(from, 0, bytes);
      __wrap_memcpy(to, from, bytes);
      ::operator delete(from);
      ::operator delete(to);
    }
    const bool done = measured_rounds(ranks);
    counting = false;
    REQUIRE(done);
    CHECK(cases.back()->wrong(0) == "");
    CHECK(cases.back()->wrong(1) == "");
    cost.copies = static_cast<double>(bytes_copied) / static_cast<double>(kChunks * payload);
    cost.allocations = allocations;
  }
  ranks.leave_and_check();
  return cost;
}

/// Load, copy of what net_ring shares, store; headers are the rest.
bool within_bounds(const Cost& cost) { return cost.copies < 3.1 && cost.allocations == 0; }

}  // namespace

TEST_CASE("a chunk is copied no more often than the design says, and nothing is allocated") {
  const Cost cost = cost_of_an_op(false);
  INFO("copies " << cost.copies << " allocations " << cost.allocations);
  CHECK(within_bounds(cost));
  CHECK(cost.copies > 1.9);  // It does count: loads and stores are copies.
}

// Payloads of an MTU of 1,500 and of jumbo frames: for instructions.py --payloads.
TEST_CASE("chunks of 1408 bytes cost no more copies") {
  CHECK(within_bounds(cost_of_an_op(false, 1'408)));
}
TEST_CASE("chunks of 8192 bytes cost no more copies") {
  CHECK(within_bounds(cost_of_an_op(false, 8'192)));
}
TEST_CASE("unchecked chunks of 1408 bytes cost no more copies") {
  CHECK(within_bounds(cost_of_an_op(false, 1'408, false)));
}
TEST_CASE("unchecked chunks of 8192 bytes cost no more copies") {
  CHECK(within_bounds(cost_of_an_op(false, 8'192, false)));
}

// The most expensive frame that is dropped: its header is right, and its group is unknown.
TEST_CASE("a flood of foreign frames allocates nothing") {
  TwoRanks ranks;
  REQUIRE(ranks.form());
  wire::FrameAddresses addresses;
  addresses.source_mac = {2, 9, 9, 9, 9, 9};
  addresses.destination_mac = ranks.rank(1).datapath->ports()[0]->mac();
  addresses.source_ip = *wire::parse_ip("10.0.0.66");
  addresses.destination_ip = ranks.ip_of(1);
  addresses.source_port = addresses.destination_port = TwoRanks::kPort;
  std::array<std::byte, 256> packet{};
  wire::CommonHeader common;
  common.group_tag = 0x40000001;
  common.packet_number = 1;
  const std::size_t bytes = encode_ping(packet, common);
  const auto header = wire::FrameTemplate::make(addresses);
  REQUIRE(header);

  Lane& lane = ranks.rank(1).datapath->lane(0);
  const std::uint64_t before = read_counter(lane.counters().rx_packets);
  allocations = 0;
  for (int round = 0; round < kFloodRounds; ++round) {
    for (int i = 0; i < kFloodBurst; ++i) {
      rte_mbuf* mbuf = rte_pktmbuf_alloc(ranks.rank(0).datapath->pools(0).packet());
      REQUIRE(mbuf != nullptr);
      auto* frame = reinterpret_cast<std::byte*>(
          rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(header->bytes() + bytes)));
      header->write(frame, bytes);
      std::copy_n(packet.begin(), bytes, frame + header->bytes());
      REQUIRE(rte_ring_enqueue(ranks.ports().to_b(), mbuf) == 0);
    }
    counting = true;
    flooded_round(lane, ranks.now += 10'000);
    counting = false;
  }
  CHECK(read_counter(lane.counters().rx_packets) - before == kFloodRounds * kFloodBurst);
  CHECK(allocations == 0);
  ranks.ports().drain();
  ranks.leave_and_check();
}

// A stranger's hello: it names a group that does not exist, or one that does and that does
// not want it. Its payload's CRC is wrong, so that looking for the group is most of the cost.
void forged_hellos_beside(std::uint16_t idle) {
  TwoRanksOptions options;
  options.max_groups = static_cast<std::uint16_t>(idle + 1);
  TwoRanks ranks(options);
  REQUIRE(ranks.form());
  for (std::uint16_t i = 0; i < idle; ++i) REQUIRE(ranks.form_another());
  for (int round = 0; round < 10'000; ++round) ranks.round(20);
  wire::FrameAddresses addresses;
  addresses.destination_mac = ranks.rank(1).datapath->ports()[0]->mac();
  addresses.source_ip = ranks.ip_of(0);
  addresses.destination_ip = ranks.ip_of(1);
  addresses.source_port = addresses.destination_port = TwoRanks::kPort;
  const auto header = wire::FrameTemplate::make(addresses);
  REQUIRE(header);
  const collective::ShardConfig& config = ranks.rank(1).plan.shards[0].shard->config();
  // Every second one is of the group that is there; the others name a group each, since what a
  // look-up meets in its bucket depends on the lane's random secret.
  std::array<std::array<std::byte, 256>, kFloodBurst> packets{};
  for (std::uint32_t i = 0; i < packets.size(); ++i) {
    wire::CommonHeader common;
    wire::HelloBody hello;
    hello.key = {config.key.group_id, i % 2 == 1 ? config.key.epoch : 1'000'000 + i};
    common.packet_number = 1;
    common.group_tag = wire::group_tag(hello.key);
    hello.payload_bytes = config.payload_bytes;
    hello.to_rank = 1;
    hello.nranks = 2;
    hello.lanes = 1;
    auto& packet = packets[i];
    REQUIRE(encode_hello(packet, wire::PacketType::kHello, common, hello, packet.size()) ==
            packet.size());
    packet.back() ^= std::byte{1};
  }
  Lane& lane = ranks.rank(1).datapath->lane(0);
  const auto drops = [&](wire::Drop why) {
    return read_counter(lane.counters().drops[static_cast<std::size_t>(why)]);
  };
  for (int round = 0; round < kFloodRounds; ++round) {
    for (int i = 0; i < kFloodBurst; ++i) {
      const auto& packet = packets[i];
      rte_mbuf* mbuf = rte_pktmbuf_alloc(ranks.rank(0).datapath->pools(0).packet());
      REQUIRE(mbuf != nullptr);
      auto* frame = reinterpret_cast<std::byte*>(
          rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(header->bytes() + packet.size())));
      header->write(frame, packet.size());
      std::copy(packet.begin(), packet.end(), frame + header->bytes());
      REQUIRE(rte_ring_enqueue(ranks.ports().to_b(), mbuf) == 0);
    }
    flooded_round(lane, ranks.now += 20);
  }
  CHECK(drops(wire::Drop::kUnknownGroup) == kFloodRounds * kFloodBurst / 2);
  CHECK(drops(wire::Drop::kPayloadCrc) == kFloodRounds * kFloodBurst / 2);
  ranks.ports().drain();
  ranks.leave_and_check();
}

TEST_CASE("forged hellos beside 1 more group") { forged_hellos_beside(1); }
TEST_CASE("forged hellos beside 64 more groups") { forged_hellos_beside(64); }

TEST_CASE("beside 1 idle group and client") { cost_beside_idle(1); }
TEST_CASE("beside 64 idle groups and clients") { cost_beside_idle(64); }

TEST_CASE("a copy or an allocation that creeps in is found") {
  const Cost cost = cost_of_an_op(true);
  INFO("copies " << cost.copies << " allocations " << cost.allocations);
  CHECK(cost.copies >= 3.5);
  CHECK(cost.allocations > 0);
  CHECK_FALSE(within_bounds(cost));
}
