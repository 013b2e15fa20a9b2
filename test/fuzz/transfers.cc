// SPDX-License-Identifier: BSD-3-Clause
// One shard with transfers, production code on real mbufs, all of whose peers are hostile: they
// send pieces, offers and pulls with right checksums, tokens and addresses, and with whatever
// fields, order and time the input says. The shard may touch nothing but the memory of unfinished
// transfers, ends each of them once, stores what was sent for that place and nothing else, must
// send nothing but frames that a peer can read, must close within its limit, and must give back
// every mbuf.
//
// The input: eight bytes of configuration, then actions, a byte each and then their fields.
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "collective/shard.h"
#include "fuzz/hostile_peers.h"
#include "fuzz/input.h"
#include "fuzz/repair.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using collective::TransferEnd;
using wire::PacketType;

constexpr std::uint16_t kStreams = 4;
constexpr std::size_t kTagAt = 4;  ///< in the header
constexpr std::size_t kFromRankAt = 46;
constexpr std::size_t kTokenAt = 56;

collective::ShardConfig config_from(Input& input) {
  collective::ShardConfig config;
  config.key = {7, 1};
  config.nranks = static_cast<std::uint16_t>(1 + input.pick(5));
  config.rank = static_cast<std::uint16_t>(input.pick(config.nranks));
  config.member_count = static_cast<std::uint16_t>(1 + input.pick(2));
  config.lanes = static_cast<std::uint8_t>(1 + input.pick(2));
  config.lane = static_cast<std::uint8_t>(input.pick(config.lanes));
  config.payload_bytes = 64 * (1 + input.pick(2));
  config.incarnation = kIncarnation + config.rank;
  const std::uint32_t pairs = config.nranks * config.member_count * config.member_count;
  const std::uint8_t room = input.u8();
  config.transfers.streams = (room & 0x20) != 0 ? kStreams : 1;
  config.transfers.pairs_max =
      (room & 0x80) != 0 ? 1 + (room & 3) : pairs * config.transfers.streams;
  config.packet_pool = (room & 0x40) != 0 ? small_pool : large_pool;
  config.control_pool = control_pool;
  config.window_packets = 2u + (room >> 2 & 15);
  config.max_chunks = 64;
  config.congestion = static_cast<transport::CongestionKind>(input.pick(3));
  config.timeouts.silence_ns = 2'000'000'000;
  if (config.nranks == 1) return config;
  const bool alone = config.nranks == 2 && (room & 0x83) == 3;
  add_peers(config, collective::upstream_rank(config.rank, config.nranks),
            collective::downstream_rank(config.rank, config.nranks));
  if (alone) settle_transfers_alone(config);
  return config;
}

class Run {
 public:
  explicit Run(Input& input) : input_(input), config_(config_from(input)) {
    auto made = collective::Shard::create(config_, reduce::make_cpu_backend(16));
    FUZZ_CHECK(made.has_value());
    shard_ = std::move(*made);
    shard_->start(now_);
    if (config_.nranks == 1) return;
    hello(PacketType::kHello);
    hello(PacketType::kHelloAck);
  }

  void act() {
    switch (input_.pick(20)) {
      case 0:
      case 1:
      case 2:
        return post();
      case 3:
      case 4:
      case 5:
        return fitting_piece();
      case 6:
        return any_piece();
      case 7:
        return offer(false);
      case 8:
        return offer(true);
      case 9:
      case 10:
        return pull(false);
      case 11:
        return pull(true);
      case 12:
        return again();
      case 13:
        return raw();
      case 14:
        now_ += static_cast<TimeNs>(input_.u8()) << input_.pick(24);
        return;
      case 15:
      case 16:
      case 17: {
        const bool idle = input_.pick(2) != 0;
        return poll(idle, input_.pick(65));
      }
      case 18:
        return keep_alive();
      default:
        break;
    }
    switch (input_.pick(6)) {
      case 0:
        shard_->leave(now_);
        break;
      case 1: {
        AbortReason reason{.code = AbortCode::kClientAbort};
        reason.set_detail("the input says so");
        shard_->abort(reason, now_);
        break;
      }
      case 2:
        release_held(0);
        break;
      case 3:
        return bye();
      default:
        shard_->flush(now_);
    }
  }

  void finish() {
    shard_->leave(now_);
    for (int round = 0; round < 400 && !closed_; ++round) {
      poll(true, collective::OutboxSide::kCapacity);
      now_ += 10'000'000;
    }
    FUZZ_CHECK(closed_);
    shard_.reset();
    release_held(0);
    for (rte_mempool* pool : {large_pool, small_pool, control_pool})
      FUZZ_CHECK(rte_mempool_in_use_count(pool) == 0);
  }

 private:
  using Key = std::pair<std::uint64_t, TransferEnd>;  ///< stream, processes, which end is here
  struct Posted {
    std::uint64_t sequence = 0;
    std::uint64_t id = 0;
    wire::TransferTerms terms;
    bool active = false;
    bool up_to = false;                   ///< a receive whose size is not told yet
    std::uint64_t room = 0;               ///< bytes of the memory
    std::unique_ptr<std::byte[]> memory;  ///< exactly so many, so that a sanitizer sees
  };

  static Key key_of(const wire::ProcessPair& pair, TransferEnd end) {
    return {std::uint64_t{pair.stream} << 32 | std::uint32_t{pair.source} << 16 | pair.destination,
            end};
  }
  std::uint32_t processes() const { return std::uint32_t{config_.nranks} * config_.member_count; }
  std::uint16_t rank_of(std::uint16_t process) const {
    return static_cast<std::uint16_t>(process / config_.member_count);
  }

  /// What a transfer is called with: it follows from its number, so that peers know.
  static wire::TransferTerms terms_of(const wire::ProcessPair& pair, std::uint64_t sequence) {
    const std::uint64_t mixed =
        (sequence + pair.source * 31u + pair.destination * 7u + pair.stream * 3u) *
        0x9e3779b97f4a7c15u;
    constexpr std::array<std::uint32_t, 8> kBytes = {0, 1, 63, 64, 300, 1000, 5000, 20'000};
    return {kBytes[mixed >> 40 & 7], static_cast<std::uint32_t>(mixed >> 50 & 1),
            static_cast<wire::TransferCall>(mixed >> 52 & 3)};
  }
  /// Of every byte of a chunk.
  static std::byte byte_of(const wire::ProcessPair& pair, std::uint64_t sequence,
                           std::uint64_t chunk) {
    const std::uint64_t mixed =
        (sequence * 131 + chunk * 17 + pair.source * 5u + pair.destination + pair.stream * 257u) *
        0x9e3779b97f4a7c15u;
    return static_cast<std::byte>(1 + (mixed >> 32) % 255);
  }
  /// Whether the lane has a part in it.
  bool has(const wire::ProcessPair& pair) const {
    return pair.stream == 0 ||
           (pair.source + pair.destination + pair.stream) % config_.lanes == config_.lane;
  }
  std::uint64_t offset_of(const wire::ProcessPair& pair, std::uint64_t chunk) const {
    if (pair.stream != 0) return chunk * config_.payload_bytes;
    return (chunk * config_.lanes + config_.lane) * config_.payload_bytes;
  }
  std::size_t bytes_of(const wire::ProcessPair& pair, std::uint64_t chunk,
                       std::uint64_t bytes) const {
    const std::uint64_t at = offset_of(pair, chunk);
    return at >= bytes ? 0 : std::min<std::uint64_t>(config_.payload_bytes, bytes - at);
  }

  /// A pair whose source, or destination, is of this rank, and whose other end is of `rank`.
  wire::ProcessPair pair_with(std::uint16_t rank, bool goes_out) {
    const auto here = static_cast<std::uint16_t>(config_.rank * config_.member_count +
                                                 input_.pick(config_.member_count));
    const auto there =
        static_cast<std::uint16_t>(rank * config_.member_count + input_.pick(config_.member_count));
    wire::ProcessPair pair =
        goes_out ? wire::ProcessPair{here, there} : wire::ProcessPair{there, here};
    if (config_.transfers.streams != 1)
      pair.stream = static_cast<std::uint16_t>(input_.pick(kStreams));
    return pair;
  }
  std::uint16_t some_peer() {
    return static_cast<std::uint16_t>((config_.rank + 1 + input_.pick(config_.nranks - 1)) %
                                      config_.nranks);
  }
  wire::CommonHeader common(std::uint16_t rank) { return header_from(config_, rank, ++number_); }

  void deliver(std::span<const std::byte> packet) {
    if (!give(*shard_, packet, decoded_, (number_ & 7) == 7, now_)) return;
    last_.assign(packet.begin(), packet.end());
    take_events();
  }

  void hello(PacketType type) {
    const std::uint16_t rank = type == PacketType::kHello
                                   ? collective::upstream_rank(config_.rank, config_.nranks)
                                   : collective::downstream_rank(config_.rank, config_.nranks);
    deliver(greeting(config_, type, common(rank)));
  }

  /// So that silence does not end every run.
  void keep_alive() {
    if (config_.nranks == 1) return;
    for (const bool down : {true, false}) {
      std::array<std::byte, 128> out{};
      const std::uint16_t rank = down ? collective::upstream_rank(config_.rank, config_.nranks)
                                      : collective::downstream_rank(config_.rank, config_.nranks);
      deliver({out.data(), encode_ping(out, common(rank))});
    }
  }

  void bye() {
    if (config_.nranks == 1) return;
    std::array<std::byte, 128> out{};
    const std::uint16_t rank = input_.pick(2) != 0
                                   ? collective::upstream_rank(config_.rank, config_.nranks)
                                   : collective::downstream_rank(config_.rank, config_.nranks);
    deliver({out.data(), encode_bye(out, PacketType::kBye, common(rank), {0})});
  }

  void post() {
    const auto rank = static_cast<std::uint16_t>(input_.pick(config_.nranks));
    const bool goes_out = input_.pick(2) != 0;
    collective::TransferSpec spec;
    spec.pair = pair_with(rank, goes_out);
    spec.end = goes_out ? TransferEnd::kSource : TransferEnd::kDestination;
    Posted& posted = posted_[key_of(spec.pair, spec.end)];
    const std::uint64_t sequence = posted.sequence + 1;
    spec.terms = terms_of(spec.pair, sequence);
    spec.id = next_id_;
    const bool first = spec.pair.stream == 0 ? config_.lane == 0 : has(spec.pair);
    if (!goes_out && first && next_id_ % 2 == 0) {
      constexpr std::array<std::uint32_t, 4> kSpare = {0, 1, 64, 3000};
      spec.up_to = true;
      spec.terms.bytes += kSpare[next_id_ / 2 % 4];
    }
    const std::uint64_t room = spec.terms.bytes;
    auto memory = std::make_unique<std::byte[]>(room);
    if (goes_out) {
      for (std::uint64_t chunk = 0; offset_of(spec.pair, chunk) < spec.terms.bytes; ++chunk) {
        std::fill_n(memory.get() + offset_of(spec.pair, chunk),
                    bytes_of(spec.pair, chunk, spec.terms.bytes),
                    byte_of(spec.pair, sequence, chunk));
      }
    }
    spec.from = spec.to = memory.get();
    if (shard_->post(spec, now_) != collective::PostResult::kOk) return;
    FUZZ_CHECK(has(spec.pair));
    FUZZ_CHECK(!posted.active);
    posted = {sequence, next_id_++, spec.terms, true, spec.up_to, room, std::move(memory)};
    take_events();
  }

  /// Sequence of what is posted here, or what is near.
  std::uint64_t sequence_near(const wire::ProcessPair& pair, TransferEnd end) {
    const auto found = posted_.find(key_of(pair, end));
    const std::uint64_t posted = found == posted_.end() ? 0 : found->second.sequence;
    switch (input_.pick(6)) {
      case 0:
        return posted + 1;
      case 1:
        return posted == 0 ? 0 : posted - 1;
      default:
        return posted;
    }
  }

  void piece(std::uint16_t rank, const wire::OfferHeader& header, std::size_t bytes) {
    bytes = std::min<std::size_t>(bytes, 512);
    std::array<std::byte, wire::kHeaderBytes + 512> out{};
    const std::span<std::byte> payload(out.data() + wire::kHeaderBytes, bytes);
    std::ranges::fill(payload, byte_of(header.pair, header.sequence, header.chunk));
    const bool damaged = input_.pick(32) == 31;
    wire::encode_piece(std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes),
                       common(rank), header, wire::crc32c(payload) + (damaged ? 1 : 0));
    deliver({out.data(), wire::kHeaderBytes + bytes});
  }

  void fitting_piece() {
    if (config_.nranks == 1) return;
    const std::uint16_t rank = some_peer();
    wire::OfferHeader header;
    header.pair = pair_with(rank, false);
    header.sequence = sequence_near(header.pair, TransferEnd::kDestination);
    if (header.sequence == 0) header.sequence = 1;
    header.terms = terms_of(header.pair, header.sequence);
    // Several in a row, so that a large one gets on.
    const std::uint32_t first = input_.u8();
    for (std::uint32_t count = 1 + input_.pick(40), i = 0; i < count; ++i) {
      header.chunk = first + i;
      const std::size_t bytes = bytes_of(header.pair, header.chunk, header.terms.bytes);
      if (bytes == 0) return;
      piece(rank, header, bytes);
    }
  }

  void any_piece() {
    if (config_.nranks == 1) return;
    const std::uint16_t rank = some_peer();
    wire::OfferHeader header;
    header.pair = any_pair(rank, false);
    const std::uint8_t change = input_.u8();
    header.sequence = (change & 1) != 0 ? (input_.small_or_any() | 1) % wire::kTransferSequences
                                        : sequence_near(header.pair, TransferEnd::kDestination) + 1;
    header.terms = terms_of(header.pair, header.sequence);
    change_terms(header.terms, change);
    header.chunk = (change & 16) != 0 ? input_.u32() : input_.u8();
    piece(
        rank, header,
        (change & 32) != 0 ? input_.u8() : bytes_of(header.pair, header.chunk, header.terms.bytes));
  }

  wire::ProcessPair any_pair(std::uint16_t rank, bool goes_out) {
    if (input_.pick(8) != 7) return pair_with(rank, goes_out);
    const std::uint8_t source = input_.u8();
    const std::uint8_t destination = input_.u8();
    return {source, destination, static_cast<std::uint16_t>(source * destination % 7)};
  }
  void change_terms(wire::TransferTerms& terms, std::uint8_t change) {
    if ((change & 2) != 0) terms.bytes = input_.small_or_any();
    if ((change & 4) != 0) terms.tag = input_.u32();
    if ((change & 8) != 0) terms.call = static_cast<wire::TransferCall>(input_.pick(5));
  }

  void offer(bool any) {
    if (config_.nranks == 1) return;
    const std::uint16_t rank = some_peer();
    const std::uint8_t change = input_.u8();
    wire::OfferHeader header;
    header.pair = any ? any_pair(rank, false) : pair_with(rank, false);
    header.sequence = any && (change & 1) != 0
                          ? input_.small_or_any()
                          : sequence_near(header.pair, TransferEnd::kDestination);
    header.terms = terms_of(header.pair, header.sequence);
    if (any) change_terms(header.terms, change);
    header.asks = (change & 64) != 0;
    header.done = (change & 128) != 0;
    std::array<std::byte, 512> out{};
    deliver({out.data(), encode_offer(out, common(rank), header)});
  }

  void pull(bool any) {
    if (config_.nranks == 1) return;
    const std::uint16_t rank = some_peer();
    const std::uint8_t change = input_.u8();
    wire::PullHeader header;
    header.pair = any ? any_pair(rank, true) : pair_with(rank, true);
    header.sequence = any && (change & 1) != 0 ? input_.small_or_any()
                                               : sequence_near(header.pair, TransferEnd::kSource);
    header.asks = (change & 2) != 0;
    header.complete = (change & 12) == 12;
    if ((change & 16) != 0) header.echo = (change & 32) != 0 ? input_.u32() : last_offer_;
    header.first = (change & 64) != 0 ? input_.u32() : input_.u8();
    if (any) {
      header.wanted = input_.u64();
    } else {
      const std::uint32_t wanted = input_.pick(64);
      header.wanted = (std::uint64_t{1} << wanted) - 1;
      const wire::TransferTerms terms = terms_of(header.pair, header.sequence);
      while (header.first > 0 && bytes_of(header.pair, header.first - 1, terms.bytes) == 0)
        header.first /= 2;
      for (std::uint32_t i = 0; i < 64; ++i) {
        if (bytes_of(header.pair, std::uint64_t{header.first} + i, terms.bytes) == 0) {
          header.wanted &= ~(std::uint64_t{1} << i);
        }
      }
    }
    std::array<std::byte, 512> out{};
    deliver({out.data(), encode_pull(out, common(rank), header)});
  }

  void raw() {
    const auto bytes = input_.bytes(wire::kHeaderBytes + input_.u8());
    if (config_.nranks == 1) return;
    std::array<std::byte, wire::kHeaderBytes + 256> packet{};
    std::copy(bytes.begin(), bytes.end(), packet.begin());
    packet[kFromRankAt] = std::byte{0};
    const std::uint16_t rank = some_peer();
    packet[kFromRankAt + 1] = static_cast<std::byte>(rank);
    for (std::size_t i = 0; i < 8; ++i) packet[kTokenAt + i] = std::byte{0};
    packet[kTokenAt + 7] = static_cast<std::byte>(kTokenFrom + rank);
    const std::uint32_t tag = wire::group_tag(config_.key);
    for (std::size_t i = 0; i < 4; ++i) {
      packet[kTagAt + i] = static_cast<std::byte>(tag >> (24 - 8 * i));
    }
    repair_packet({packet.data(), bytes.size()});
    contents_known_ = false;
    deliver({packet.data(), bytes.size()});
  }

  void again() {
    const std::vector<std::byte> packet = last_;
    if (!packet.empty()) deliver(packet);
  }

  void poll(bool idle, std::size_t room) {
    auto out = std::make_unique<collective::Outbox>();
    for (auto& box : out->boxes) box.room = std::min(room, collective::OutboxSide::kCapacity);
    shard_->flush(now_);
    static_cast<void>(shard_->poll(now_, idle, *out));
    for (std::size_t i = 0; i < out->any().count; ++i) {
      FUZZ_CHECK(out->any().frames[i]->port == 0);  // the lane's only port
    }
    for (auto& box : out->boxes) {
      FUZZ_CHECK(box.count <= box.room);
      for (std::size_t i = 0; i < box.count; ++i) sent(box.frames[i]);
    }
    release_held(16);
    FUZZ_CHECK(shard_->deadline(now_) >= 0);
    take_events();
  }

  void take_events() {
    collective::Event event;
    while (shard_->pop_event(event)) {
      FUZZ_CHECK(!closed_);
      if (event.type == collective::EventType::kTransferSized) sized(event.op_seq, event.bytes);
      if (event.type == collective::EventType::kTransferDone) ended(event.op_seq);
      // Nothing refers to client memory once an abort was told.
      const bool closes = event.type == collective::EventType::kClosed;
      if (event.type == collective::EventType::kAborted || closes) {
        for (auto& [key, posted] : posted_) posted.memory.reset();
        over_ = true;
      }
      closed_ |= closes;
    }
  }

  /// That is under way, with its key.
  auto& under_way(std::uint64_t id) {
    const auto found =
        std::ranges::find_if(posted_, [&](const auto& entry) { return entry.second.id == id; });
    FUZZ_CHECK(found != posted_.end() && found->second.active);
    return *found;
  }

  void sized(std::uint64_t id, std::uint64_t bytes) {
    Posted& posted = under_way(id).second;
    FUZZ_CHECK(posted.up_to && bytes <= posted.room);
    posted.up_to = false;
    posted.terms.bytes = bytes;
  }

  void ended(std::uint64_t id) {
    auto& [key, posted] = under_way(id);
    FUZZ_CHECK(!posted.up_to);
    posted.active = false;
    const wire::ProcessPair pair{static_cast<std::uint16_t>(key.first >> 16),
                                 static_cast<std::uint16_t>(key.first),
                                 static_cast<std::uint16_t>(key.first >> 32)};
    const std::uint8_t lanes = pair.stream == 0 ? config_.lanes : 1;
    const std::uint8_t lane = pair.stream == 0 ? config_.lane : 0;
    if (key.second == TransferEnd::kDestination && contents_known_ && posted.memory != nullptr) {
      for (std::uint64_t at = 0; at < posted.room; ++at) {
        const std::uint64_t chunk = at / config_.payload_bytes;
        const bool own = at < posted.terms.bytes && chunk % lanes == lane;
        const std::byte wanted = own ? byte_of(pair, posted.sequence, chunk / lanes) : std::byte{0};
        FUZZ_CHECK(posted.memory[at] == wanted);
      }
    }
    posted.memory.reset();
  }

  void sent(rte_mbuf* frame) {
    wire::FrameView view;
    const std::span<const std::byte> bytes(rte_pktmbuf_mtod(frame, const std::byte*),
                                           rte_pktmbuf_data_len(frame));
    FUZZ_CHECK(wire::parse_frame(bytes, view) == wire::Drop::kNone);
    FUZZ_CHECK(wire::decode(view.payload, decoded_) == wire::Drop::kNone);
    const wire::CommonHeader& header = decoded_.common;
    FUZZ_CHECK(header.from_rank == config_.rank);
    FUZZ_CHECK(header.group_tag == wire::group_tag(config_.key));
    const auto to = static_cast<std::uint16_t>(header.token - kTokenTo);
    FUZZ_CHECK(to < config_.nranks && to != config_.rank);
    FUZZ_CHECK(numbers_sent_[to].insert(header.packet_number).second);
    if (header.type == PacketType::kPull) {
      FUZZ_CHECK(rank_of(decoded_.pull.pair.source) == to);
      FUZZ_CHECK(rank_of(decoded_.pull.pair.destination) == config_.rank);
    } else if (header.type == PacketType::kPiece || header.type == PacketType::kOffer) {
      last_offer_ = static_cast<std::uint32_t>(header.packet_number);
      const wire::OfferHeader& offer = decoded_.offer;
      FUZZ_CHECK(rank_of(offer.pair.destination) == to);
      FUZZ_CHECK(rank_of(offer.pair.source) == config_.rank);
      if (header.type == PacketType::kPiece) check_piece(offer);
    }
    held_.push_back(frame);  // as a driver does, for a while
  }
  void check_piece(const wire::OfferHeader& piece) {
    const auto found = posted_.find(key_of(piece.pair, TransferEnd::kSource));
    FUZZ_CHECK(found != posted_.end() && found->second.active && !over_);
    FUZZ_CHECK(found->second.sequence == piece.sequence && found->second.terms == piece.terms);
    FUZZ_CHECK(decoded_.payload.size() == bytes_of(piece.pair, piece.chunk, piece.terms.bytes));
    FUZZ_CHECK(wire::payload_crc_ok(decoded_));
    const std::byte wanted = byte_of(piece.pair, piece.sequence, piece.chunk);
    for (const std::byte byte : decoded_.payload) FUZZ_CHECK(byte == wanted);
  }
  void release_held(std::size_t keep) {
    for (; held_.size() > keep; held_.pop_front()) rte_pktmbuf_free(held_.front());
  }

  Input& input_;
  collective::ShardConfig config_;
  std::map<Key, Posted> posted_;  // outlives the shard
  std::unique_ptr<collective::Shard> shard_;
  wire::Packet decoded_;
  std::deque<rte_mbuf*> held_;
  std::vector<std::byte> last_;
  TimeNs now_ = 1'000'000'000;
  std::uint64_t number_ = 0;
  std::uint64_t next_id_ = 1;
  std::uint32_t last_offer_ = 0;
  std::map<std::uint16_t, std::set<std::uint64_t>> numbers_sent_;
  bool contents_known_ = true;
  bool over_ = false;
  bool closed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  make_pools();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  play<Run>(data, size, 1000);
  return 0;
}
