// SPDX-License-Identifier: BSD-3-Clause
// Writes the inputs that fuzzing begins with: make_seeds FOLDER. The frames are those that two
// ranks of production shards exchange, from hello to bye, with an op and an abort between; the
// other targets' are plain uses in the form that each target reads.
#include <rte_mbuf.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "collective/shard.h"
#include "fuzz/eal.h"

namespace {

using namespace gradwire;

std::filesystem::path folder;
int frames_written = 0;

void write(const std::string& target, const std::string& name,
           std::initializer_list<std::span<const std::byte>> parts) {
  std::filesystem::create_directories(folder / target);
  std::ofstream out(folder / target / (name + ".bin"), std::ios::binary);
  for (const auto part : parts)
    out.write(reinterpret_cast<const char*>(part.data()),
              static_cast<std::streamsize>(part.size()));
}

void write(const std::string& target, const std::string& name,
           std::initializer_list<std::uint8_t> bytes) {
  const std::vector<std::uint8_t> copy(bytes);
  write(target, name, {std::as_bytes(std::span(copy))});
}

void write_frame(std::span<const std::byte> frame) {
  const std::byte as_it_is{2};
  const std::byte repaired{1};
  const std::string number = std::to_string(frames_written++);
  write("wire_codec", "frame" + number, {std::span(&as_it_is, 1), frame});
  wire::FrameView view;
  FUZZ_CHECK(wire::parse_frame(frame, view) == wire::Drop::kNone);
  write("wire_codec", "packet" + number, {std::span(&repaired, 1), view.payload});
}

/// Two ranks whose frames go straight to each other.
class Pair {
 public:
  explicit Pair(rte_mempool* pool) {
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      collective::ShardConfig config;
      config.key = {7, 1};
      config.rank = rank;
      config.nranks = 2;
      config.payload_bytes = 128;
      config.incarnation = 100u + rank;
      config.upstream.incarnation = config.downstream.incarnation = 101u - rank;
      config.upstream.tokens = config.downstream.tokens = {10u + rank, 11u - rank};
      wire::FrameAddresses addresses;
      addresses.source_ip = {.family = 4, .bytes = {10, 0, 0, static_cast<std::uint8_t>(rank)}};
      addresses.destination_ip = {.family = 4,
                                  .bytes = {10, 0, 0, static_cast<std::uint8_t>(1 - rank)}};
      if (rank == 1) addresses.vlan_id = 5;
      config.downstream.frame = config.upstream.frame = *wire::FrameTemplate::make(addresses);
      config.downstream.ip = config.upstream.ip = addresses.destination_ip;
      config.packet_pool = config.control_pool = pool;
      auto made = collective::Shard::create(config, reduce::make_cpu_backend(16));
      FUZZ_CHECK(made.has_value());
      shards_[rank] = std::move(*made);
      shards_[rank]->start(now_);
    }
  }
  void rounds(int count) {
    for (; count > 0; --count, now_ += 1'000'000) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        auto out = std::make_unique<collective::Outbox>();
        static_cast<void>(shards_[rank]->poll(now_, true, *out));
        for (std::size_t i = 0; i < out->down().count; ++i)
          deliver(out->down().frames[i], 1 - rank);
        for (std::size_t i = 0; i < out->up().count; ++i) deliver(out->up().frames[i], 1 - rank);
        shards_[1 - rank]->flush(now_);
      }
    }
  }
  void post(std::uint64_t op_seq) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      collective::OpSpec spec;
      spec.op_seq = op_seq;
      spec.count = 100;
      spec.inputs[0] = spec.outputs[0] = memory_[rank].data();
      FUZZ_CHECK(shards_[rank]->post(spec, now_) == collective::PostResult::kOk);
    }
  }
  void abort() {
    AbortReason reason{.code = AbortCode::kClientAbort, .op_seq = 2};
    reason.set_detail("the user said \xc2\xabstop\xc2\xbb");
    shards_[0]->abort(reason, now_);
  }
  void leave() {
    for (auto& shard : shards_) shard->leave(now_);
  }

 private:
  void deliver(rte_mbuf* frame, std::size_t to) {
    const std::span<const std::byte> bytes(rte_pktmbuf_mtod(frame, const std::byte*),
                                           rte_pktmbuf_data_len(frame));
    // Repeated frames add nothing.
    if (frames_written < 24) write_frame(bytes);
    rte_mbuf* copy = rte_pktmbuf_copy(frame, frame->pool, 0, UINT32_MAX);
    rte_pktmbuf_free(frame);
    wire::FrameView view;
    auto packet = std::make_unique<wire::Packet>();
    FUZZ_CHECK(wire::parse_frame({rte_pktmbuf_mtod(copy, const std::byte*), copy->data_len},
                                 view) == wire::Drop::kNone);
    FUZZ_CHECK(wire::decode(view.payload, *packet) == wire::Drop::kNone);
    const auto from = shards_[to]->source_of(packet->common, view.source_ip);
    shards_[to]->on_packet(copy, *packet, from, false, now_);
  }
  std::array<std::unique_ptr<collective::Shard>, 2> shards_;
  std::array<std::array<std::byte, 400>, 2> memory_{};
  TimeNs now_ = 1'000'000'000;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_seeds FOLDER\n");
    return 2;
  }
  folder = argv[1];
  fuzz::start_eal();
  rte_mempool* pool = rte_pktmbuf_pool_create("seeds", 1023, 0, 0, 2048, SOCKET_ID_ANY);
  FUZZ_CHECK(pool != nullptr);
  Pair left(pool);
  left.rounds(3);
  left.post(1);
  left.rounds(4);
  left.leave();
  left.rounds(100);
  frames_written = 16;
  Pair aborted(pool);
  aborted.rounds(3);
  frames_written = 20;
  aborted.abort();
  aborted.rounds(20);

  // The frames that an exchange of two ranks does not have.
  std::array<std::byte, 2 * wire::kHeaderBytes> packet{};
  const std::byte repaired{1};
  const wire::CommonHeader common{.packet_number = 5, .from_rank = 1, .token = 10};
  const std::span<const std::byte> payload = std::span(packet).subspan(wire::kHeaderBytes);
  wire::encode_contribution(std::span(packet).first<wire::kHeaderBytes>(), common,
                            {.op_seq = 2, .total_count = 16}, 1, wire::crc32c(payload));
  write("wire_codec", "contribution", {std::span(&repaired, 1), packet});
  for (const auto type : {wire::PacketType::kReceipt, wire::PacketType::kInquiry}) {
    const wire::Receipt receipt{.entered = 2, .received = 1, .chunks = 5, .echo = 4};
    const std::size_t bytes = wire::encode_receipt(packet, type, common, receipt);
    write("wire_codec", type == wire::PacketType::kReceipt ? "receipt" : "inquiry",
          {std::span(&repaired, 1), std::span(packet).first(bytes)});
  }

  const wire::OfferHeader offer{.pair = {1, 0}, .sequence = 3, .terms = {.bytes = 64}};
  wire::encode_piece(std::span(packet).first<wire::kHeaderBytes>(), common, offer,
                     wire::crc32c(payload));
  write("wire_codec", "piece", {std::span(&repaired, 1), packet});
  write("wire_codec", "offer",
        {std::span(&repaired, 1),
         std::span(packet).first(wire::encode_offer(packet, common, offer))});
  write("wire_codec", "pull",
        {std::span(&repaired, 1),
         std::span(packet).first(wire::encode_pull(
             packet, common, {.pair = {1, 0}, .sequence = 3, .wanted = 5, .first = 1}))});

  const wire::TileHeader tile{.op_seq = 2, .total_count = 16};
  wire::encode_tile_piece(std::span(packet).first<wire::kHeaderBytes>(), common, tile,
                          wire::crc32c(payload));
  write("wire_codec", "tile piece", {std::span(&repaired, 1), packet});
  const auto write_tile = [&](const char* name, std::size_t bytes) {
    write("wire_codec", name, {std::span(&repaired, 1), std::span(packet).first(bytes)});
  };
  wire::TileHeader call{.op_seq = 2, .total_count = 16, .format = WireFormat::kInt8, .asks = true};
  write_tile("tile call", wire::encode_tile_call(packet, common, call));
  call.not_entered = true;
  write_tile("tile not entered", wire::encode_tile_call(packet, common, call));
  wire::TilePullHeader pull{.op_seq = 2, .first = 1, .grant = 200, .repair = true};
  pull.wanted = {1, 2, 0, 64};
  write_tile("tile repair", wire::encode_tile_pull(packet, common, pull));
  write_tile("tile pull",
             wire::encode_tile_pull(packet, common,
                                    {.op_seq = 2, .first = 1, .grant = 9, .done = 1, .over = 1}));
  write_tile("tile all",
             wire::encode_tile_pull(packet, common, {.op_seq = 2, .results = true, .all = true}));
  // A ping that asks what was called.
  write_tile("ping", wire::encode_ping(packet, common, 2));

  // A hello both ways by itself (1), then: post, poll, chunks that fit, acknowledge, poll, leave.
  write("connection", "op",
        {0,  0,  0, 0,  1,  0x7e, 0x1f, 0x3c, 1,  0, 0,  1,  13, 0, 13, 1, 15, 0,
         64, 64, 2, 0,  0,  1,    0,    3,    7,  3, 0,  1,  1,  0, 3,  7, 7,  9,
         0,  15, 1, 64, 64, 14,   200,  20,   15, 1, 64, 64, 17, 0, 15, 0, 64, 64});
  write("connection", "silence",
        {2,  1,  1,  1,   2,  0x7e, 0x1f, 0x3c, 1,  0,  0,   1,  13, 0, 15, 0,
         64, 64, 14, 255, 23, 15,   0,    64,   64, 14, 255, 23, 15, 0, 64, 64});
  write("connection", "bye", {0, 0, 0, 0,  0, 0x7e, 0x1f, 0x3c, 1,  0,  0,   1,  10, 1, 0,  1, 10,
                              1, 0, 0, 17, 0, 15,   0,    64,   64, 14, 200, 20, 15, 0, 64, 64});
  // Two ranks: a receive is posted, its pieces come, and it says so until it is heard.
  write("transfers", "receive", {1,  0, 0,  0, 0,  0,   0x20, 0, 0, 1,  0, 0,  0,  15, 1,  64, 7, 0,
                                 64, 0, 0,  2, 15, 1,   64,   3, 0, 0,  0, 2,  0,  30, 0,  0,  0, 0,
                                 15, 1, 64, 7, 0,  192, 0,    0, 2, 15, 1, 64, 19, 0,  15, 1,  64});
  // A send is posted, pulled and complete; the next one waits.
  write("transfers", "send",
        {1, 0,  0, 0, 0,  0, 0x20, 0, 0, 1, 1,  0, 0,  15, 1, 64, 9, 0, 16, 0,   0,  2,  0, 30, 15,
         1, 64, 9, 0, 12, 0, 0,    2, 0, 0, 15, 1, 64, 0,  1, 1,  0, 0, 14, 200, 20, 15, 1, 64});
  // One rank of two processes.
  write("transfers", "here",
        {0, 0, 1, 1, 0, 0, 0x20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 15, 1, 64, 19, 0, 15, 1, 64});
  write("ack_ranges", "exchange", {0, 0, 4, 8, 0, 0, 1,   0,  1, 5, 0, 2,  6, 1, 0,
                                   0, 1, 0, 8, 1, 9, 255, 16, 8, 0, 7, 10, 0, 2});
  // A block of int8 of one scale, and a bf16 of each kind: 1, infinity, NaN, least denormal, -0.
  write("wire_formats", "int8", {0x35, 1, 0, 0, 128, 63, 0, 1, 127, 129, 128});
  write("wire_formats", "infinite scale", {7, 2, 0, 0, 128, 127, 0, 1, 255});
  write("wire_formats", "bf16", {0x14, 0, 128, 63, 128, 127, 193, 255, 1, 0, 0, 128});
  write("command_ring", "ops", {0, 0, 1, 0, 16, 0, 1, 0,  1, 0, 0, 7, 0, 9, 0, 4, 0,  9, 1, 4,
                                0, 6, 4, 1, 0,  2, 1, 16, 0, 1, 0, 1, 0, 1, 7, 0, 11, 1, 0});
  write("control_socket", "group", {0,  2, 0, 3, 1, 0, 16, 0, 5, 1, 1, 0, 0, 1, 0, 0,
                                    12, 1, 0, 1, 0, 9, 1,  0, 7, 1, 1, 0, 4, 1, 0, 1});
  // Two ranks of one user that want encrypt, and then: nothing; another address; the first want
  // lowered by whoever has the key; an older entry; and a table that only one of them gets.
  write("entries", "encrypt", {0x35, 0, 0});
  write("entries", "address", {0x35, 0, 0, 0x0e, 0, 3, 0});
  write("entries", "lowered", {0x35, 0, 0, 0x12, 0, 0});
  write("entries", "older", {0x35, 0, 0, 0x1b, 1, 0, 0, 0});
  write("entries", "another table", {0x35, 0, 0, 0x0f, 1, 0x07, 0, 0, 21});
  // Keys of a cluster that is amid a rotation, a job's key, a minimum, and off.
  write("entries", "rotation", {0x36, 0x01, 2, 0x01, 1, 0x21, 0, 4, 0x04, 0, 1, 2});
  write("entries", "job", {0x3d, 0, 0x20, 9, 0x03, 1, 2, 0x1a, 0, 1, 1, 1});
  write("entries", "minimum", {0x25, 0x10, 2, 0x10, 1});
  write("entries", "off", {0x17, 0, 1, 7, 0, 0x08, 1, 0x0d, 1});
  // Ops that are posted and run. Then packets that are played again, damaged, sent back, made by a
  // rank that lies, and lost.
  write("sealed", "ops", {5, 4, 8, 0, 100, 0, 2, 1, 200, 1, 3, 3, 3, 0, 9, 0, 2, 2, 2});
  write("sealed", "again", {2, 0, 8, 0, 100, 0, 2, 2, 12, 3, 0, 2, 13, 9, 0, 2, 2});
  write("sealed", "damaged",
        {7, 16, 8, 0, 100, 0, 2, 2, 12, 3, 1, 0, 0, 16, 0, 12, 5, 1, 0, 2, 80, 0, 2, 2});
  write("sealed", "sent back",
        {1, 0, 8, 0, 100, 0, 2, 2, 12, 3, 6, 0, 1, 0, 12, 4, 7, 0, 4, 66, 0, 0, 0, 2});
  write("sealed", "lies",
        {4, 0, 8, 0, 100, 0, 2, 9, 3, 2, 5, 7, 3, 2, 10, 40, 8, 0, 4, 1, 2, 3, 4, 1, 2});
  // Generations pass; then a packet of the next one is forged, and one of the last played again.
  write("sealed", "generations",
        {4, 2, 20, 0, 100, 2,  5, 39, 5,  39, 0, 100, 2, 5, 39, 5,  39, 12, 63, 1,   0, 5, 3, 2,
         2, 2, 12, 0, 0,   12, 1, 0,  12, 2,  0, 12,  3, 0, 5,  39, 5,  39, 0,  100, 2, 2, 2});
  write("sealed", "lost",
        {5, 0, 8, 3, 100, 0, 2, 7, 85, 2, 8, 9, 6, 200, 16, 2, 0, 50, 0, 2, 7, 3, 2});
  const std::string toml =
      "[daemon]\nname = \"a\"\n[[port]]\ndevice = \"net_memif0\"\nip = \"10.0.0.1/24\"\nmtu = "
      "9000\n"
      "[[neighbor]]\nip = \"10.0.0.2\"\nmac = \"02:00:00:00:00:02\"\n[transport]\nrate_gbps = "
      "2.5\n";
  const std::string flags = "lanes.count=2\nport.0.ip=10.0.0.9/8\n";
  const std::byte none{0};
  const std::byte two{2};
  write("config", "file", {std::span(&none, 1), std::as_bytes(std::span(toml))});
  write("config", "flags",
        {std::span(&two, 1), std::as_bytes(std::span(flags)), std::as_bytes(std::span(toml))});
  return 0;
}
