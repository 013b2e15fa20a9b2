// SPDX-License-Identifier: BSD-3-Clause
// A flood of frames that are nobody's: each is counted by its reason, none is answered, and nothing
// changes for the group that is there. Of what a host has to answer, a bounded number is.
#include <rte_mbuf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "two_ranks.h"

using namespace gradwire;
using namespace gradwire::lane;

namespace {

using Frame = std::vector<std::byte>;
constexpr std::size_t kUdpPayload = 14 + 20 + 8;
constexpr int kFlood = 5'000;

Frame bytes_of(std::initializer_list<int> values, std::size_t size) {
  Frame frame;
  for (const int value : values) frame.push_back(static_cast<std::byte>(value));
  frame.resize(size);
  return frame;
}

struct Flooded {
  explicit Flooded(const TwoRanksOptions& options = {}) : ranks(options) {}

  TwoRanks ranks;

  wire::MacAddress mac() { return ranks.rank(1).datapath->ports()[0]->mac(); }
  const LaneCounters& counters() { return ranks.rank(1).datapath->lane(0).counters(); }

  /// A UDP frame to rank 1 around `payload`.
  Frame udp(std::span<const std::byte> payload, std::uint16_t port = TwoRanks::kPort,
            const char* destination = "10.0.0.2") {
    wire::FrameAddresses addresses;
    addresses.source_mac = {2, 9, 9, 9, 9, 9};
    addresses.destination_mac = mac();
    addresses.source_ip = *wire::parse_ip("10.0.0.66");
    addresses.destination_ip = *wire::parse_ip(destination);
    addresses.source_port = addresses.destination_port = port;
    const auto header = wire::FrameTemplate::make(addresses);
    REQUIRE(header);
    Frame frame(header->bytes() + payload.size());
    header->write(frame.data(), payload.size());
    std::copy(payload.begin(), payload.end(), frame.begin() + kUdpPayload);
    return frame;
  }

  Frame packet(wire::PacketType type, std::uint32_t tag) {
    std::vector<std::byte> out(512);
    wire::CommonHeader common;
    common.group_tag = tag;
    common.packet_number = 1;
    std::size_t bytes = 0;
    if (type == wire::PacketType::kHello) {
      wire::HelloBody hello;
      hello.key = {99, 1};
      hello.payload_bytes = 256;
      hello.to_rank = 1;
      hello.nranks = 2;
      hello.lanes = 1;
      bytes = encode_hello(out, type, common, hello, 320);
    } else if (type == wire::PacketType::kAbort) {
      AbortReason reason{.code = AbortCode::kClientAbort};
      bytes = encode_abort(out, common, reason);
    } else if (type == wire::PacketType::kBye) {
      bytes = encode_bye(out, type, common, {});
    } else {
      bytes = encode_ping(out, common);
    }
    return udp(std::span(out).first(bytes));
  }

  void send(const Frame& frame) {
    rte_mbuf* mbuf = rte_pktmbuf_alloc(ranks.rank(0).datapath->pools(0).packet());
    REQUIRE(mbuf != nullptr);
    std::memcpy(rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(frame.size())), frame.data(),
                frame.size());
    REQUIRE(rte_ring_enqueue(ranks.ports().to_b(), mbuf) == 0);
  }

  /// Sends it so often, rank 1 alone being awake; 10 us a frame. @return how many frames rank 1
  /// sent meanwhile that are not its group's own.
  int flood(const Frame& frame, int count = kFlood) {
    int answers = 0;
    for (int i = 0; i < count; ++i) {
      send(frame);
      ranks.rank(1).datapath->lane(0).poll_once(ranks.now += 10'000);
      void* object = nullptr;
      while (rte_ring_dequeue(ranks.ports().to_a(), &object) == 0) {
        auto* sent = static_cast<rte_mbuf*>(object);
        wire::FrameView view;
        REQUIRE(wire::parse_frame({rte_pktmbuf_mtod(sent, const std::byte*), sent->data_len},
                                  view) == wire::Drop::kNone);
        const bool to_neighbor = view.kind == wire::FrameKind::kUdp &&
                                 view.destination_ip == *wire::parse_ip("10.0.0.1");
        answers += to_neighbor ? 0 : 1;
        rte_pktmbuf_free(sent);
      }
    }
    return answers;
  }
};

}  // namespace

TEST_CASE("a flood of foreign frames is counted by reason, and none is answered") {
  Flooded host;
  REQUIRE(host.ranks.form());
  const std::uint32_t tag = wire::group_tag(host.ranks.rank(1).plan.shards[0].shard->config().key);
  struct Kind {
    const char* name;
    Frame frame;
    wire::Drop why;
    bool by_shard = false;
  };
  const std::vector<std::byte> garbage(200, std::byte{0x5a});
  Frame damaged = host.packet(wire::PacketType::kPing, 1);
  damaged[kUdpPayload + 9] ^= std::byte{1};
  Frame tcp = host.udp(garbage);
  tcp[14 + 9] = std::byte{6};
  tcp[14 + 11] = static_cast<std::byte>(std::to_integer<int>(tcp[14 + 11]) + 11);  // its checksum
  // Who has 10.0.0.9? Not this host.
  const Frame arp =
      bytes_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 9,  9, 9, 9,  9, 8, 6, 0, 1, 8, 0,  6, 4, 0,
                1,    2,    9,    9,    9,    9,    9, 10, 0, 0, 66, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9},
               60);
  const std::vector<Kind> kinds = {
      {"garbage to the lane's port", host.udp(garbage), wire::Drop::kVersion},
      {"nothing to the lane's port", host.udp({}), wire::Drop::kShort},
      {"another port", host.udp(garbage, 53), wire::Drop::kForeign},
      {"another address", host.udp(garbage, TwoRanks::kPort, "10.0.0.99"), wire::Drop::kForeign},
      {"a hello of no group here", host.packet(wire::PacketType::kHello, 0),
       wire::Drop::kUnknownGroup},
      {"a ping of no group here", host.packet(wire::PacketType::kPing, tag ^ 0x40000000),
       wire::Drop::kUnknownGroup},
      {"a damaged packet", damaged, wire::Drop::kHeaderCrc},
      {"a group's, from elsewhere", host.packet(wire::PacketType::kPing, tag), wire::Drop::kForeign,
       true},
      {"an abort of a group, from elsewhere", host.packet(wire::PacketType::kAbort, tag),
       wire::Drop::kForeign, true},
      {"a bye of a group, from elsewhere", host.packet(wire::PacketType::kBye, tag),
       wire::Drop::kForeign, true},
      {"TCP", tcp, wire::Drop::kForeign},
      {"ARP for another", arp, wire::Drop::kForeign},
      {"less than Ethernet", Frame(6), wire::Drop::kShort},
      {"no protocol", Frame(60), wire::Drop::kForeign},
  };
  const auto& by_shard = host.ranks.rank(1).plan.shards[0].shard->counters().drops;
  for (const Kind& kind : kinds) {
    INFO(kind.name);
    const auto why = static_cast<std::size_t>(kind.why);
    const std::uint64_t before = kind.by_shard ? by_shard[why] : host.counters().drops[why];
    CHECK(host.flood(kind.frame) == 0);
    const std::uint64_t after = kind.by_shard ? by_shard[why] : host.counters().drops[why];
    CHECK(after - before == kFlood);
    // The other rank is asleep only while the flood lasts: the group is well.
    host.ranks.run_until([] { return false; }, 20'000'000);
  }
  CHECK(host.counters().neighbor_frames == 0);
  test::AllReduceCase all_reduce(2, 1, 10'000, DataType::kFloat32, RedOp::kSum, 3, true);
  for (std::uint16_t r = 0; r < 2; ++r) host.ranks.post(r, all_reduce);
  for (std::uint16_t r = 0; r < 2; ++r) {
    std::optional<ipc::CompletionEntry> answer;
    REQUIRE(host.ranks.run_until([&] {
      answer = host.ranks.rank(r).client->completion();
      return answer.has_value();
    }));
    INFO(answer->text);
    CHECK(static_cast<ErrorCode>(answer->status) == ErrorCode::kOk);
    CHECK(all_reduce.wrong(r) == "");
  }
  host.ranks.leave_and_check();
}

TEST_CASE("a flood of pings gets a burst of answers, and then so many a second") {
  Flooded host;
  // An echo request from 10.0.0.1 to 10.0.0.2 (see neighbors_test.cc).
  Frame ping =
      bytes_of({0, 0,  0, 0, 0,    0, 0,    0,    0,    0,    0,    0,    8,    0,   0x45, 0,
                0, 32, 0, 1, 0,    0, 64,   1,    0x66, 0xda, 10,   0,    0,    1,   10,   0,
                0, 2,  8, 0, 0x21, 4, 0x12, 0x34, 0,    1,    0x61, 0x62, 0x63, 0x64},
               60);
  const auto mac = host.mac();
  std::memcpy(ping.data(), mac.data(), mac.size());
  const int answers = host.flood(ping, 50'000);  // for half a second
  CHECK(answers >= 500);
  CHECK(answers <= 500 + static_cast<int>(port::ReplyLimit::kBurst));
  CHECK(host.counters().echo_replies == static_cast<std::uint64_t>(answers));
  CHECK(host.counters().replies_withheld == 50'000u - static_cast<unsigned>(answers));
  // To everybody is to nobody: no such ping is answered.
  std::memset(ping.data(), 0xff, 6);
  CHECK(host.flood(ping, 100) == 0);
}

TEST_CASE("of a flood of ARP little is copied, and others are heard all the same") {
  Flooded host;
  Datapath& datapath = *host.ranks.rank(1).datapath;
  // Who has 10.0.0.2? Tell 10.0.0.66.
  Frame request =
      bytes_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 9,  9, 9, 9,  9, 8, 6, 0, 1, 8, 0,  6, 4, 0,
                1,    2,    9,    9,    9,    9,    9, 10, 0, 0, 66, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2},
               60);
  const TimeNs begin = host.ranks.now;
  CHECK(host.flood(request) == 0);  // The control thread would answer, and there is none.
  const auto passes =
      static_cast<std::uint64_t>((host.ranks.now - begin) / port::ReplyLimit::kIntervalNs) +
      port::ReplyLimit::kBurst;
  CHECK(host.counters().neighbor_frames <= passes);
  CHECK(host.counters().neighbor_frames + host.counters().neighbor_drops == kFlood);
  CHECK(datapath.frames_waiting() == host.counters().neighbor_frames);

  request[31] = std::byte{1};  // 10.0.0.1
  host.flood(request, 1);
  ControlFrame frame;
  std::size_t from_neighbor = 0;
  while (datapath.receive_frame(frame)) from_neighbor += frame.bytes[31] == std::byte{1} ? 1 : 0;
  CHECK(from_neighbor == 1);
  CHECK(datapath.frames_waiting() == 0);
}

std::span<const std::byte> as_sender(const std::uint32_t& ip) {
  return std::as_bytes(std::span(&ip, 1));
}

TEST_CASE("which senders share a limit depends on a secret") {
  // Each of these shared the limit of 10.0.0.1 while the hash had no key.
  std::vector<std::uint32_t> colliding;
  constexpr std::uint32_t kNeighbor = 0x0100000a;  // as it lies in a frame, on x86 and arm64
  constexpr std::uint32_t kGoldenRatio = 0x9e3779b1;
  for (std::uint32_t i = 1; colliding.size() < 64; ++i) {
    const std::uint32_t sender = kNeighbor + (i << 8);
    if ((sender * kGoldenRatio) >> 27 == (kNeighbor * kGoldenRatio) >> 27) {
      colliding.push_back(sender);
    }
  }
  // One in 32 does by chance: of 64 hardly ever more than 20.
  for (std::uint64_t key = 1; key <= 100; ++key) {
    port::SenderLimit limit(SipHashKey{key, ~key});
    int sharing = 0;
    for (const std::uint32_t sender : colliding) {
      sharing += limit.place_of(as_sender(sender)) == limit.place_of(as_sender(kNeighbor)) ? 1 : 0;
    }
    CHECK(sharing <= 20);
    for (const std::uint32_t sender : colliding) {
      if (limit.place_of(as_sender(sender)) == limit.place_of(as_sender(kNeighbor))) continue;
      while (limit.allow(as_sender(sender), 0)) {
      }
    }
    CHECK(limit.allow(as_sender(kNeighbor), 0));
  }
  // And no two daemons have the same.
  CHECK(port::SenderLimit(SipHashKey{1, 2}).place_of(as_sender(kNeighbor)) !=
        port::SenderLimit(SipHashKey{2, 2}).place_of(as_sender(kNeighbor)));
}

// A group's own frames wait behind them in the port's queue.
TEST_CASE("a round takes more small frames than frames as large as the port carries") {
  TwoRanksOptions options;
  options.payload_bytes = 8192;
  options.mtu = 9000;
  Flooded host(options);
  REQUIRE(host.ranks.form());
  const auto taken_in_a_round = [&](std::size_t payload_bytes) {
    host.ranks.run_until([] { return false; }, 20'000'000);  // what is under way arrives
    const Frame frame = host.udp(std::vector<std::byte>(payload_bytes, std::byte{0x5a}));
    for (int i = 0; i < 60; ++i) host.send(frame);
    const std::uint64_t before = host.counters().rx_packets;
    host.ranks.rank(1).datapath->lane(0).poll_once(host.ranks.now);
    return host.counters().rx_packets - before;
  };
  CHECK(taken_in_a_round(8'200) == 4);
  CHECK(taken_in_a_round(1'400) >= 20);
  CHECK(taken_in_a_round(20) == 32);
  host.ranks.leave_and_check();
}
