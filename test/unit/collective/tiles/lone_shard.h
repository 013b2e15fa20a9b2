// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One shard of a group with tiles, whose other ranks are the test: it says what they send, and
/// sees what comes to them. One thread.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/shapes/shape_ring.h"
#include "collective/shard.h"
#include "collective/tiles/tile_memory.h"

namespace gradwire::test {

/// What came to another rank.
struct Came {
  std::uint16_t to = 0;
  wire::Packet packet;  ///< its payload is gone
  std::vector<std::byte> payload;
};

class LoneShard {
 public:
  static constexpr std::uint64_t kTokenFrom = 100;  ///< and the other rank
  static constexpr std::uint64_t kTokenTo = 200;

  /// Rank 0 of a group that has formed. Tiles have four chunks of 64 bytes.
  explicit LoneShard(collective::ShardConfig config) : config_(std::move(config)) {
    static int count = 0;
    const std::string name = "lone" + std::to_string(count++);
    pool_.reset(rte_pktmbuf_pool_create(name.c_str(), 1023, 0, 0, RTE_PKTMBUF_HEADROOM + 2048,
                                        SOCKET_ID_ANY));
    REQUIRE(pool_ != nullptr);
    complete();
    auto made = collective::Shard::create(config_, reduce::make_cpu_backend(16));
    REQUIRE(made.has_value());
    shard_ = std::move(*made);
    shard_->start(now_);
    hello(wire::PacketType::kHello);
    hello(wire::PacketType::kHelloAck);
    collective::Event event;
    REQUIRE(shard_->pop_event(event));
    REQUIRE(event.type == collective::EventType::kFormed);
  }
  ~LoneShard() { shard_.reset(); }
  LoneShard(const LoneShard&) = delete;
  LoneShard& operator=(const LoneShard&) = delete;

  [[nodiscard]] static collective::ShardConfig config_of(std::uint16_t nranks) {
    collective::ShardConfig config;
    config.nranks = nranks;
    config.payload_bytes = 64;
    config.tiles.used = true;
    config.tiles.tile_bytes = 16 * 4 * 64;
    config.tiles.scratch_bytes = 1;  // places for the parts of two tiles
    return config;
  }

  /// An all-reduce of int32, which is ones; or what `change` makes of it.
  template <class Change>
  collective::PostResult post(std::uint64_t count, Change&& change) {
    collective::OpSpec spec;
    spec.op_seq = ++posted_;
    spec.count = count;
    spec.datatype = DataType::kInt32;
    inputs_[posted_].assign(count * config_.nranks, 1);
    outputs_[posted_].assign(count * config_.nranks, 0);
    spec.inputs[0] = reinterpret_cast<const std::byte*>(inputs_[posted_].data());
    spec.outputs[0] = reinterpret_cast<std::byte*>(outputs_[posted_].data());
    change(spec);
    last_ = spec;
    const collective::PostResult result = shard_->post(spec, now_);
    if (result != collective::PostResult::kOk) --posted_;
    return result;
  }
  void post(std::uint64_t count) {
    REQUIRE(post(count, [](collective::OpSpec&) {}) == collective::PostResult::kOk);
  }

  // Packets of other ranks.
  /// The call of an op that was posted with `count` elements.
  [[nodiscard]] static wire::TileHeader call_of(std::uint64_t op_seq, std::uint64_t count) {
    wire::TileHeader header;
    header.op_seq = op_seq;
    header.total_count = count;
    header.datatype = DataType::kInt32;
    return header;
  }
  [[nodiscard]] static wire::TileHeader not_entered(std::uint64_t op_seq) {
    wire::TileHeader header;
    header.op_seq = op_seq;
    header.datatype = DataType{};
    header.redop = RedOp{};
    header.collective = Collective{};
    header.root = 0;
    header.not_entered = true;
    return header;
  }
  /// Elements are all `value`. @param crc_off  what the CRC is wrong by
  void piece(std::uint16_t from, const wire::TileHeader& header, std::size_t bytes,
             std::int32_t value = 1, std::uint32_t crc_off = 0) {
    std::array<std::byte, wire::kHeaderBytes + 256> out{};
    for (std::size_t at = 0; at < bytes; at += sizeof value) {
      std::memcpy(out.data() + wire::kHeaderBytes + at, &value, sizeof value);
    }
    wire::encode_tile_piece(
        std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes), common(from),
        header, wire::crc32c({out.data() + wire::kHeaderBytes, bytes}) + crc_off);
    deliver({out.data(), wire::kHeaderBytes + bytes});
  }
  void call(std::uint16_t from, const wire::TileHeader& header) {
    std::array<std::byte, 128> out{};
    deliver({out.data(), encode_tile_call(out, common(from), header)});
  }
  void pull(std::uint16_t from, const wire::TilePullHeader& header) {
    std::array<std::byte, 256> out{};
    deliver({out.data(), encode_tile_pull(out, common(from), header)});
  }
  void bye(std::uint16_t from, std::uint64_t completed) {
    std::array<std::byte, 128> out{};
    deliver({out.data(), encode_bye(out, wire::PacketType::kBye, common(from), {completed})});
  }
  /// So that nobody seems silent.
  void ping() {
    for (std::uint16_t rank = 1; rank < config_.nranks; ++rank) {
      std::array<std::byte, 128> out{};
      deliver({out.data(), encode_ping(out, common(rank))});
    }
  }

  /// Lets time go by, in steps of a microsecond or, if it is long, of a thousandth of it.
  /// @return what came to others.
  std::vector<Came> run(TimeNs ns = 200'000) {
    std::vector<Came> came;
    const TimeNs step = std::max<TimeNs>(ns / 1000, 1'000);
    for (const TimeNs end = now_ + ns; now_ < end; now_ += step) {
      auto out = std::make_unique<collective::Outbox>();
      for (auto& box : out->boxes) box.room = collective::OutboxSide::kCapacity;
      shard_->flush(now_);
      static_cast<void>(shard_->poll(now_, true, *out));
      for (auto& box : out->boxes) {
        for (std::size_t i = 0; i < box.count; ++i) take(box.frames[i], came);
      }
      collective::Event event;
      while (shard_->pop_event(event)) {
        if (event.type == collective::EventType::kOpDone) done_ = event.op_seq;
        if (event.type == collective::EventType::kAborted) aborted_ = true;
      }
    }
    return came;
  }
  /// The last of the tile packets of that type that went to a rank, of what came.
  [[nodiscard]] static std::optional<wire::Packet> last(const std::vector<Came>& came,
                                                        std::uint16_t to, wire::PacketType type) {
    std::optional<wire::Packet> found;
    for (const Came& each : came) {
      if (each.to == to && each.packet.common.type == type) found = each.packet;
    }
    return found;
  }
  [[nodiscard]] static std::size_t count(const std::vector<Came>& came, std::uint16_t to,
                                         wire::PacketType type) {
    std::size_t found = 0;
    for (const Came& each : came) found += each.to == to && each.packet.common.type == type;
    return found;
  }

  [[nodiscard]] std::uint64_t drops(wire::Drop drop) const {
    return counters().drops[static_cast<std::size_t>(drop)];
  }
  [[nodiscard]] const collective::ShardCounters& counters() const {
    status_ = shard_->status(now_);
    return status_.counters;
  }
  [[nodiscard]] collective::ShardStatus status() const { return shard_->status(now_); }
  [[nodiscard]] collective::Shard& shard() { return *shard_; }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] bool aborted() const { return aborted_; }
  [[nodiscard]] const std::vector<std::int32_t>& output(std::uint64_t op_seq) {
    return outputs_[op_seq];
  }
  [[nodiscard]] collective::TileCut cut() const { return cut_of(config_, last_); }
  [[nodiscard]] TimeNs now() const { return now_; }

 private:
  struct PoolFree {
    void operator()(rte_mempool* pool) const { rte_mempool_free(pool); }
  };

  static wire::IpAddress ip(std::uint16_t rank) {
    return {.family = 4, .bytes = {10, 0, 0, static_cast<std::uint8_t>(1 + rank)}};
  }
  void complete() {
    config_.key = {7, 1};
    config_.packet_pool = config_.control_pool = pool_.get();
    for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) {
      wire::FrameAddresses addresses;
      addresses.source_ip = ip(0);
      addresses.destination_ip = ip(rank);
      config_.peers.push_back({0,
                               {kTokenTo + rank, kTokenFrom + rank},
                               ip(rank),
                               *wire::FrameTemplate::make(addresses),
                               0,
                               {},
                               {wire::kSourcePortsMax, true}});
    }
    const auto up = static_cast<std::uint16_t>(config_.nranks - 1);
    config_.upstream.incarnation = config_.downstream.incarnation = 9;
    config_.upstream.tokens = config_.peers[up].tokens;
    config_.downstream.tokens = config_.peers[1].tokens;
    config_.upstream.frame = config_.peers[up].frame;
    config_.downstream.frame = config_.peers[1].frame;
    config_.upstream.ip = ip(up);
    config_.downstream.ip = ip(1);
  }
  wire::CommonHeader common(std::uint16_t from) {
    wire::CommonHeader header;
    header.lane = config_.lane;
    header.group_tag = wire::group_tag(config_.key);
    header.from_rank = from;
    header.packet_number = ++number_;
    header.token = kTokenFrom + from;
    return header;
  }
  void hello(wire::PacketType type) {
    const bool down = type == wire::PacketType::kHello;
    wire::HelloBody body;
    body.key = config_.key;
    body.incarnation = 9;
    body.payload_bytes = config_.payload_bytes;
    body.from_rank = down ? collective::upstream_rank(0, config_.nranks)
                          : collective::downstream_rank(0, config_.nranks);
    body.nranks = config_.nranks;
    body.lanes = config_.lanes;
    body.members = config_.members_said();
    body.credit_chunks = 4;
    std::array<std::byte, 512> out{};
    const std::size_t bytes = encode_hello(out, type, common(body.from_rank), body,
                                           wire::kHeaderBytes + config_.payload_bytes);
    deliver({out.data(), bytes});
  }
  void deliver(std::span<const std::byte> bytes) {
    rte_mbuf* frame = rte_pktmbuf_alloc(pool_.get());
    REQUIRE(frame != nullptr);
    auto* room = reinterpret_cast<std::byte*>(
        rte_pktmbuf_append(frame, static_cast<std::uint16_t>(bytes.size())));
    REQUIRE(room != nullptr);
    std::memcpy(room, bytes.data(), bytes.size());
    wire::Packet packet;
    REQUIRE(wire::decode({room, bytes.size()}, packet) == wire::Drop::kNone);
    const auto from = shard_->source_of(packet.common, ip(packet.common.from_rank));
    shard_->on_packet(frame, packet, from, false, now_);
  }
  void take(rte_mbuf* frame, std::vector<Came>& came) {
    wire::FrameView view;
    const std::span<const std::byte> bytes(rte_pktmbuf_mtod(frame, const std::byte*),
                                           rte_pktmbuf_data_len(frame));
    Came each;
    REQUIRE(wire::parse_frame(bytes, view) == wire::Drop::kNone);
    REQUIRE(wire::decode(view.payload, each.packet) == wire::Drop::kNone);
    each.payload.assign(each.packet.payload.begin(), each.packet.payload.end());
    each.packet.payload = {};
    each.to = static_cast<std::uint16_t>(each.packet.common.token - kTokenTo);
    came.push_back(std::move(each));
    rte_pktmbuf_free(frame);
  }

  collective::ShardConfig config_;
  std::unique_ptr<rte_mempool, PoolFree> pool_;
  std::map<std::uint64_t, std::vector<std::int32_t>> inputs_;
  std::map<std::uint64_t, std::vector<std::int32_t>> outputs_;
  collective::OpSpec last_;
  std::unique_ptr<collective::Shard> shard_;
  mutable collective::ShardStatus status_;
  TimeNs now_ = 1'000'000'000;
  std::uint64_t number_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
  bool aborted_ = false;
};

}  // namespace gradwire::test
