// SPDX-License-Identifier: BSD-3-Clause
// One shard with ops by tiles, production code on real mbufs, all of whose peers are hostile: they
// send pieces, calls and pulls with right checksums, tokens and addresses, and with whatever
// fields, order and time the input says. Bytes of a piece that fits are those of its op, chunk and
// sender. So the shard may send no byte that is not its op's, may end an op with right results
// alone, and each once; may touch nothing but the memory of unfinished ops; must send nothing but
// frames that a peer can read, must close within its limit, and must give back every mbuf. In some
// groups sums have formats, and what their encoding loses is right; and there are ranks without
// members, or this one is one, which others tell of ops.
//
// The input: nine bytes of configuration, then actions, a byte each and then their fields.
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
#include "collective/tiles/tile_memory.h"
#include "fuzz/hostile_peers.h"
#include "fuzz/input.h"
#include "fuzz/repair.h"
#include "fuzz/tile_contents.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using collective::TileCut;
using wire::PacketType;

constexpr std::size_t kPayloadMax = 640;

/// Of a group whose ranks differ in size; it stays for the life of the program.
const ProcessLayout* uneven_layout(std::uint16_t nranks) {
  static std::map<std::uint16_t, ProcessLayout> layouts;
  std::vector<std::uint16_t> ranks;
  for (std::uint16_t rank = nranks; rank-- > 0;) ranks.insert(ranks.end(), 1 + rank % 3, rank);
  return &layouts.try_emplace(nranks, *ProcessLayout::make(ranks, nranks)).first->second;
}

// Bits of the first byte, beside those that say how many ranks there are.
constexpr std::uint8_t kFormats = 4;
constexpr std::uint8_t kHosts = 16;       ///< ranks without members
constexpr std::uint8_t kHostItself = 32;  ///< this one is one

std::uint16_t neighbor(const collective::ShardConfig& config, bool next) {
  if (config.folds_only()) return collective::attached_rank(config.rank, config.nranks);
  return next ? collective::downstream_rank(config.rank, config.nranks)
              : collective::upstream_rank(config.rank, config.nranks);
}

collective::ShardConfig config_from(Input& input) {
  collective::ShardConfig config;
  config.key = {7, 1};
  const std::uint8_t size = input.u8();
  config.nranks = static_cast<std::uint16_t>(2 + size % 4);
  if ((size & kHosts) != 0) config.folding_ranks = (size & 64) != 0 ? 2 : 1;
  config.rank = static_cast<std::uint16_t>(input.pick(config.nranks));
  config.member_count = static_cast<std::uint16_t>(1 + input.pick(2));
  config.lanes = static_cast<std::uint8_t>(1 + input.pick(2));
  config.lane = static_cast<std::uint8_t>(input.pick(config.lanes));
  const std::uint8_t room = input.u8();
  // A block of `int8` fits.
  config.payload_bytes = ((size & kFormats) != 0 ? 320 : 64) * (1u + (room & 1));
  config.tiles = true;
  config.tile_bytes = 16u * (1u + (room >> 1 & 3)) * config.payload_bytes;
  config.tile_scratch_bytes = (room & 8) != 0 ? 1024 : 65'536;
  config.packet_pool = (room & 0x40) != 0 ? small_pool : large_pool;
  if ((room & 0x80) != 0) {
    config.layout = uneven_layout(config.nranks);
    if (!config.folds_only()) {
      config.member_count = config.processes().members_of(config.rank);
    }
  }
  // Small ops wait for the same ranks in another way.
  config.direct_bytes = (room & 0x20) != 0 ? 1024 : 0;
  if (config.folding_ranks != 0) {
    config.direct_bytes = config.two_step_bytes = 1024;
    std::vector<std::uint16_t> owners(1, config.nranks);
    config.owners =
        std::make_shared<const collective::Owners>(std::move(owners), config.all_ranks());
    // Not known, or those without members own most.
    std::vector<std::uint32_t> rates(config.all_ranks(), (size & 128) != 0 ? 10 : 0);
    for (std::uint16_t rank = config.nranks; (size & 128) != 0 && rank < rates.size(); ++rank) {
      rates[rank] = 40;
    }
    config.tile_shares = std::make_shared<const collective::TileShares>(
        *collective::TileShares::make(rates, config.nranks));
    if ((size & kHostItself) != 0) {
      config.rank = static_cast<std::uint16_t>(config.nranks + config.rank % config.folding_ranks);
      config.member_count = 1;
    }
  }
  config.control_pool = control_pool;
  config.window_packets = 2u + input.pick(40);
  config.max_active_ops = 1u << input.pick(5);
  config.max_chunks = 1024;
  config.incarnation = kIncarnation + config.rank;
  config.congestion = static_cast<transport::CongestionKind>(room >> 4 & 1);
  config.timeouts.silence_ns = 2'000'000'000;
  add_peers(config, neighbor(config, false), neighbor(config, true));
  return config;
}

class Run {
 public:
  explicit Run(Input& input)
      : input_(input),
        formats_((input.peek() & kFormats) != 0),
        config_(config_from(input)),
        contents_(config_, input.pick(8), formats_) {
    auto made = collective::Shard::create(config_, reduce::make_cpu_backend(16));
    FUZZ_CHECK(made.has_value());
    shard_ = std::move(*made);
    shard_->start(now_);
    hello(PacketType::kHello, neighbor(config_, false));
    hello(PacketType::kHelloAck, neighbor(config_, true));
    if (config_.rank < config_.folding_ranks) {
      const auto host = static_cast<std::uint16_t>(config_.nranks + config_.rank);
      hello(PacketType::kHello, host);
      hello(PacketType::kHelloAck, host);
    }
  }

  void act() {
    switch (input_.pick(24)) {
      case 0:
      case 1:
        return post();
      case 2:
      case 3:
      case 4:
        return answer(some_peer(), false);
      case 5:
        return answer(some_peer(), true);
      case 6:
      case 7:
        return cooperate();
      case 8:
        return any_piece();
      case 9:
        return call();
      case 10:
      case 11:
        return owners_pull(false);
      case 12:
        return owners_pull(true);
      case 13:
        return pullers_pull(false);
      case 14:
        return pullers_pull(true);
      case 15:
        return all();
      case 16:
        return again();
      case 17:
        now_ += static_cast<TimeNs>(input_.u8()) << input_.pick(24);
        return;
      case 18:
      case 19:
      case 20: {
        const bool idle = input_.pick(2) != 0;
        return poll(idle, input_.pick(65));
      }
      case 21:
        return keep_alive();
      case 22:
        return poll(true, collective::OutboxSide::kCapacity);
      default:
        break;
    }
    switch (input_.pick(16)) {
      case 0:
        return shard_->leave(now_);
      case 1:
        return bye();
      case 2:
        return raw();
      default:
        release_held(0);
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
  struct Posted {
    std::vector<std::unique_ptr<std::byte[]>> memory;  ///< exact sizes, so that a sanitizer sees
    std::vector<std::byte*> outputs;
    std::byte* lost = nullptr;  ///< residual_out, if it has one
    bool active = false;
  };

  collective::OpSpec spec_of(std::uint64_t op_seq) const { return contents_.spec_of(op_seq); }
  std::uint32_t chunks_of(std::uint64_t op_seq, std::uint16_t owner) const {
    const TileCut cut = cut_of(config_, spec_of(op_seq));
    return cut.supported() ? static_cast<std::uint32_t>(cut.chunks(owner, config_.lane)) : 0;
  }

  std::uint16_t some_peer() {
    const std::uint32_t ranks = config_.all_ranks();
    return static_cast<std::uint16_t>((config_.rank + 1 + input_.pick(ranks - 1)) % ranks);
  }
  /// Ops that this rank is in, or that others have told one without members of.
  std::uint64_t ops() const { return config_.folds_only() ? told_ : posted_.size(); }
  std::uint64_t op_near() {
    const std::uint64_t posted = ops();
    const std::uint64_t back = std::min<std::uint64_t>(input_.pick(6), posted + 1);
    return std::max<std::uint64_t>(posted + 2 - back, 1);
  }
  wire::CommonHeader common(std::uint16_t rank) { return header_from(config_, rank, ++number_); }

  void deliver(std::span<const std::byte> packet) {
    if (!give(*shard_, packet, decoded_, (number_ & 7) == 7, now_)) return;
    last_.assign(packet.begin(), packet.end());
    take_events();
  }

  void hello(PacketType type, std::uint16_t rank) {
    deliver(greeting(config_, type, common(rank)));
  }
  /// So that silence does not end every run.
  void keep_alive() {
    for (std::uint16_t rank = 0; rank < config_.all_ranks(); ++rank) {
      if (rank == config_.rank) continue;
      std::array<std::byte, 128> out{};
      deliver({out.data(), encode_ping(out, common(rank))});
    }
  }
  void bye() {
    std::array<std::byte, 128> out{};
    const std::uint16_t rank = neighbor(config_, input_.pick(2) == 0);
    deliver({out.data(), encode_bye(out, PacketType::kBye, common(rank), {input_.small_or_any()})});
  }

  void post() {
    if (config_.folds_only()) return tell_of_next();
    collective::OpSpec spec = spec_of(posted_.size() + 1);
    const GroupProcesses processes = config_.processes();
    const std::uint64_t blocks = processes.count();
    const std::size_t width = element_bytes(spec.datatype);
    const bool in_place = spec.op_seq % 2 == 0 && spec.collective == Collective::kAllReduce;
    const std::uint64_t in =
        spec.count * (spec.collective == Collective::kReduceScatter ? blocks : 1);
    const std::uint64_t out = spec.count * (spec.collective == Collective::kAllGather ? blocks : 1);
    Posted posted;
    posted.active = true;
    for (std::uint16_t member = 0; member < config_.member_count; ++member) {
      posted.memory.push_back(std::make_unique<std::byte[]>(in * width));
      std::byte* const input = posted.memory.back().get();
      for (std::uint64_t i = 0; i < in; ++i) {
        TileContents::store(
            input + i * width, spec.datatype,
            TileContents::value(spec.op_seq, processes.process_of(config_.rank, member), i));
      }
      if (!in_place) posted.memory.push_back(std::make_unique<std::byte[]>(out * width));
      spec.inputs[member] = input;
      spec.outputs[member] = posted.memory.back().get();
      posted.outputs.push_back(posted.memory.back().get());
    }
    if (TileContents::feeds_back(spec)) {
      for (const bool before : {true, false}) {
        posted.memory.push_back(std::make_unique<std::byte[]>(in * sizeof(float)));
        std::byte* const residual = posted.memory.back().get();
        (before ? const_cast<std::byte*&>(spec.residual_in) : spec.residual_out) = residual;
        for (std::uint64_t i = 0; before && i < in; ++i) {
          const float value = TileContents::residual(spec.op_seq, i);
          std::memcpy(residual + i * sizeof value, &value, sizeof value);
        }
      }
      posted.lost = spec.residual_out;
    }
    // It may be done at once.
    posted_[spec.op_seq] = std::move(posted);
    if (shard_->post(spec, now_) != collective::PostResult::kOk) {
      posted_.erase(spec.op_seq);
      return;
    }
    take_events();
  }

  /// All ranks tell of the next op of which one without members owns something.
  void tell_of_next() {
    const std::uint64_t before = told_;
    do {
      ++told_;
    } while (told_ - before < 200 &&
             (!is_by_tiles(spec_of(told_)) || chunks_of(told_, config_.rank) == 0));
    wire::TileHeader call = header_of(spec_of(told_));
    call.since = static_cast<std::uint8_t>(told_ - before);
    const std::uint8_t less = input_.u8();
    for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) {
      if ((less >> rank & 1) == 0) tell(rank, call);
    }
  }
  void tell(std::uint16_t rank, const wire::TileHeader& header) {
    std::array<std::byte, 128> out{};
    deliver({out.data(), encode_tile_call(out, common(rank), header)});
  }

  wire::TileHeader header_of(const collective::OpSpec& spec) const {
    wire::TileHeader header;
    header.op_seq = spec.op_seq;
    header.total_count = spec.count;
    header.datatype = spec.datatype;
    header.collective = spec.collective;
    header.format = spec.wire;
    if (has_root(spec.collective)) header.root = static_cast<std::uint16_t>(spec.root);
    return header;
  }
  void piece(std::uint16_t rank, const wire::TileHeader& header, std::size_t bytes) {
    std::array<std::byte, wire::kHeaderBytes + kPayloadMax> out{};
    const std::uint16_t owner = header.result ? rank : config_.rank;
    const std::vector<std::byte> right =
        contents_.wire_of(spec_of(header.op_seq), header.chunk, header.result, owner, rank);
    std::ranges::copy(right, out.begin() + wire::kHeaderBytes);
    bytes = bytes == 0 ? right.size() : std::min(bytes, kPayloadMax);
    const bool damaged = input_.pick(32) == 31;
    wire::encode_tile_piece(
        std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes), common(rank),
        header, wire::crc32c({out.data() + wire::kHeaderBytes, bytes}) + (damaged ? 1 : 0));
    deliver({out.data(), wire::kHeaderBytes + bytes});
  }
  /// What the last pull that went to the rank asks for, or a part of it.
  void answer(std::uint16_t rank, bool in_part) {
    const auto found = pulls_.find(rank);
    if (found == pulls_.end()) return;
    for (const wire::TilePullHeader& pull : std::array(found->second)) {
      if (pull.op_seq == 0 || pull.all) continue;
      wire::TileHeader header = header_of(spec_of(pull.op_seq));
      header.result = pull.results;
      const std::uint32_t most = in_part ? input_.u8() : pull.grant;
      const std::uint32_t first = pull.first + (in_part ? input_.pick(4) : 0);
      for (header.chunk = first; header.chunk < pull.grant && header.chunk - first < most;
           ++header.chunk) {
        piece(rank, header, 0);
      }
    }
  }
  /// Others do what an op needs of them, but for what the input leaves out.
  void cooperate() {
    const std::uint64_t op_seq = oldest_unfinished();
    const std::uint8_t less = input_.u8();
    for (std::uint16_t rank = 0; rank < config_.all_ranks(); ++rank) {
      const std::uint32_t chunks = config_.folds_only() ? 0 : chunks_of(op_seq, rank);
      if (rank == config_.rank || chunks == 0 || (less & 0x83) == 0x83) continue;
      const bool sums = reduces(spec_of(op_seq).collective);
      wire::TilePullHeader told{.op_seq = op_seq};
      told.done = cut_of(config_, spec_of(op_seq)).tiles(rank, config_.lane);
      if ((less & 0x44) == 0x44) told.done /= 2;
      told.first = told.grant = sums ? chunks : 0;
      // It may have been asked for what it gives before.
      if (sums && chunks <= wire::kTileGrantMax && (less & 8) != 0) {
        wire::TilePullHeader asks{.op_seq = op_seq, .grant = chunks};
        pull(rank, asks);
        poll(true, collective::OutboxSide::kCapacity);
        asks.repair = (less & 16) != 0;
        for (std::uint32_t i = 0; asks.repair && i < chunks; ++i) {
          asks.wanted[i / 64] |= std::uint64_t{1} << i % 64;
        }
        if (asks.repair) pull(rank, asks);
      }
      pull(rank, told);
    }
    for (std::uint32_t times = 1 + (less & 15); times > 0; --times) {
      poll(true, collective::OutboxSide::kCapacity);
      for (std::uint16_t rank = 0; rank < config_.all_ranks(); ++rank) answer(rank, false);
      for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) take_results(rank, op_seq);
    }
    poll(true, collective::OutboxSide::kCapacity);
    for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) {
      if (rank == config_.rank || (less & 0x30) == 0x30) continue;
      pull(rank, {.op_seq = op_seq, .asks = (less & 1) != 0, .results = true, .all = true});
    }
  }
  /// It pulls what it was told to be done, and says that it has what it pulled the last time.
  void take_results(std::uint16_t rank, std::uint64_t op_seq) {
    const auto found = pulls_.find(rank);
    if (found == pulls_.end() || found->second[0].op_seq != op_seq) return;
    if (spec_of(op_seq).collective == Collective::kReduce) return;
    std::uint32_t& taken = taken_[{rank, op_seq}];
    const std::uint32_t done =
        found->second[0].done * cut_of(config_, spec_of(op_seq)).chunks_of_tile();
    wire::TilePullHeader header{.op_seq = op_seq, .first = taken, .results = true};
    header.grant = std::max(taken, std::min(done, taken + wire::kTileGrantMax));
    taken = header.grant;
    pull(rank, header);
  }
  std::uint64_t oldest_unfinished() const {
    for (const auto& [op_seq, posted] : posted_) {
      if (posted.active) return op_seq;
    }
    return config_.folds_only() ? std::max<std::uint64_t>(told_, 1) : posted_.size() + 1;
  }
  void any_piece() {
    const std::uint16_t rank = some_peer();
    const std::uint8_t change = input_.u8();
    collective::OpSpec spec = spec_of((change & 1) != 0 ? input_.small_or_any() | 1 : op_near());
    wire::TileHeader header = header_of(spec);
    header.result = (change & 2) != 0;
    header.chunk = (change & 4) != 0 ? input_.u32() : input_.u8();
    if ((change & 0x18) == 0x18) header.total_count = input_.small_or_any() & 0xffff'ffff'ffff;
    if ((change & 0x60) == 0x60) header.datatype = static_cast<DataType>(input_.pick(8));
    piece(rank, header, (change & 0x80) != 0 ? input_.u8() : 0);
  }

  void call() {
    const std::uint16_t rank = some_peer();
    const std::uint8_t change = input_.u8();
    const std::uint64_t op_seq = (change & 1) != 0 ? input_.small_or_any() | 1 : op_near();
    wire::TileHeader header = header_of(spec_of(op_seq));
    header.echo = (change & 2) != 0 ? input_.u32() : last_pull_;
    header.asks = (change & 4) != 0;
    if ((change & 8) != 0) {
      header = {.op_seq = op_seq, .echo = header.echo, .not_entered = true};
      header.datatype = DataType{};
      header.redop = RedOp{};
      header.collective = Collective{};
      header.root = 0;
    }
    if ((change & 0x70) == 0x70) header.total_count = input_.small_or_any() & 0xffff'ffff'ffff;
    if (config_.folds_only() && !header.not_entered) {
      // It may be told of what nobody has called.
      header.since = input_.u8();
      if (header.since > op_seq) header.since = 0;
      contents_known_ = false;
    }
    tell(rank, header);
  }

  void pull(std::uint16_t rank, const wire::TilePullHeader& header) {
    std::array<std::byte, 256> out{};
    deliver({out.data(), encode_tile_pull(out, common(rank), header)});
  }
  /// Fields near what the op allows, or any.
  wire::TilePullHeader some_pull(std::uint32_t chunks, bool any) {
    wire::TilePullHeader header;
    const std::uint8_t change = input_.u8();
    header.op_seq = any && (change & 1) != 0 ? input_.small_or_any() | 1 : op_near();
    header.first = std::min<std::uint32_t>(input_.u8(), chunks);
    header.grant = std::min<std::uint32_t>(header.first + input_.u8(), chunks);
    if (any && (change & 2) != 0) header.first = input_.u32();
    if (any && (change & 4) != 0) header.grant = header.first + input_.u8();
    header.asks = (change & 8) != 0;
    header.echo = (change & 16) != 0 ? last_call_ : 0;
    const std::uint32_t granted = header.grant - header.first;
    if ((change & 0x60) != 0x60 || granted == 0 || granted > wire::kTileGrantMax) return header;
    header.repair = true;
    for (std::uint32_t i = 0; i < granted; ++i) {
      if ((change & 0x80) != 0 || i % 3 == 0) header.wanted[i / 64] |= std::uint64_t{1} << i % 64;
    }
    return header;
  }
  void owners_pull(bool any) {
    const std::uint16_t rank = some_peer();
    const std::uint64_t op_seq = op_near();
    const std::uint32_t chunks = chunks_of(op_seq, rank);
    wire::TilePullHeader header = some_pull(chunks, any);
    if (!any) header.op_seq = op_seq;
    if (!any && !reduces(spec_of(op_seq).collective)) header.first = header.grant = 0;
    if (header.first == header.grant) header.repair = false, header.wanted = {};
    header.done = any && input_.pick(4) == 0 ? input_.u32() : input_.u8() % (chunks + 1);
    if (input_.pick(4) == 0) header.over = static_cast<std::uint16_t>(input_.small_or_any());
    pull(rank, header);
  }
  void pullers_pull(bool any) {
    const std::uint64_t op_seq = op_near();
    wire::TilePullHeader header = some_pull(chunks_of(op_seq, config_.rank), any);
    if (!any) header.op_seq = op_seq;
    header.results = true;
    pull(some_peer(), header);
  }
  void all() {
    wire::TilePullHeader header{.results = true, .all = true};
    header.op_seq = input_.pick(8) == 7 ? input_.small_or_any() | 1 : op_near();
    header.asks = input_.pick(2) != 0;
    const std::uint16_t rank = some_peer();
    pull(rank, header);
  }

  void raw() {
    const auto bytes = input_.bytes(wire::kHeaderBytes + input_.pick(64));
    std::array<std::byte, wire::kHeaderBytes + 64> packet{};
    if (last_.size() > packet.size() || last_.size() < wire::kHeaderBytes) return;
    std::ranges::copy(last_, packet.begin());
    // Some bytes of the last packet differ, but not whose it is.
    for (std::size_t i = 8; i < 46 && i < bytes.size(); ++i) packet[i] ^= bytes[i] & bytes[i - 1];
    repair_packet({packet.data(), last_.size()});
    // A piece of which the op or the chunk was changed has bytes of another one.
    contents_known_ = false;
    const std::vector<std::byte> changed(packet.begin(),
                                         packet.begin() + static_cast<long>(last_.size()));
    deliver(changed);
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
      if (event.type == collective::EventType::kOpDone) ended(event.op_seq);
      // Nothing refers to client memory once an abort was told.
      const bool closes = event.type == collective::EventType::kClosed;
      // The backend can do whatever it is given.
      FUZZ_CHECK(shard_->reason().code != AbortCode::kReduceFailed);
      if (event.type == collective::EventType::kAborted || closes) {
        for (auto& [op_seq, posted] : posted_) posted.memory.clear();
        over_ = true;
      }
      closed_ |= closes;
    }
  }

  void ended(std::uint64_t op_seq) {
    const auto found = posted_.find(op_seq);
    FUZZ_CHECK(found != posted_.end() && found->second.active);
    Posted& posted = found->second;
    posted.active = false;
    const collective::OpSpec spec = spec_of(op_seq);
    if (contents_known_ && !posted.memory.empty() && is_by_tiles(spec)) check_results(spec, posted);
    posted.memory.clear();
  }
  bool is_by_tiles(const collective::OpSpec& spec) const {
    return collective::plan_op(
               config_.shape_group(), config_.lane, config_.lanes, config_.payload_bytes,
               {spec.collective, spec.datatype, spec.root, spec.count, spec.redop, spec.wire})
               .shape == collective::Shape::kTiles;
  }
  /// Of the tiles of this lane: all that this rank gets.
  void check_results(const collective::OpSpec& spec, const Posted& posted) const {
    const TileCut cut = cut_of(config_, spec);
    const bool scatters = spec.collective == Collective::kReduceScatter;
    const bool is_root = spec.collective != Collective::kReduce ||
                         config_.processes().rank_of(spec.root) == config_.rank;
    for (std::uint16_t owner = 0; owner < config_.all_ranks(); ++owner) {
      for (std::uint32_t index = 0; index < cut.tiles(owner, config_.lane); ++index) {
        const TileCut::Tile tile = cut.tile(owner, config_.lane, index);
        for (std::uint32_t i = 0; i < tile.chunks; ++i) {
          const TileCut::Chunk chunk = cut.chunk_of(tile, index * cut.chunks_of_tile() + i);
          if (posted.lost != nullptr) check_lost(spec, tile, chunk, posted);
          if (is_root && (!scatters || owner == config_.rank)) {
            check_chunk(spec, tile, chunk, posted);
          }
        }
      }
    }
  }
  void check_chunk(const collective::OpSpec& spec, const TileCut::Tile& tile,
                   const TileCut::Chunk& chunk, const Posted& posted) const {
    const std::vector<std::byte> right = contents_.output_of(spec, tile, chunk);
    const bool gathers = spec.collective == Collective::kAllGather;
    const std::uint64_t first =
        tile.first + chunk.at + (gathers ? tile.process_block * spec.count : 0);
    for (std::uint16_t member = 0; member < config_.member_count; ++member) {
      if (spec.collective == Collective::kReduceScatter &&
          member != config_.processes().member_of(tile.process_block)) {
        continue;
      }
      if (spec.collective == Collective::kReduce &&
          member != config_.processes().member_of(spec.root)) {
        continue;
      }
      FUZZ_CHECK(std::memcmp(posted.outputs[member] + first * element_bytes(spec.datatype),
                             right.data(), right.size()) == 0);
    }
  }
  void check_lost(const collective::OpSpec& spec, const TileCut::Tile& tile,
                  const TileCut::Chunk& chunk, const Posted& posted) const {
    const std::vector<std::byte> right = contents_.lost_of(spec, tile, chunk);
    const std::uint64_t first = tile.process_block * spec.count + tile.first + chunk.at;
    const std::span lost(posted.lost + first * sizeof(float), right.size());
    // An owner may say that it has what it never asked for.
    const bool never_made = tile.owner != config_.rank &&
                            std::ranges::all_of(lost, [](std::byte b) { return b == std::byte{}; });
    FUZZ_CHECK(never_made || std::ranges::equal(lost, right));
  }

  void sent(rte_mbuf* frame) {
    wire::FrameView view;
    const std::span<const std::byte> bytes(rte_pktmbuf_mtod(frame, const std::byte*),
                                           rte_pktmbuf_data_len(frame));
    FUZZ_CHECK(wire::parse_frame(bytes, view) == wire::Drop::kNone);
    FUZZ_CHECK(wire::decode(view.payload, decoded_) == wire::Drop::kNone);
    const wire::CommonHeader& header = decoded_.common;
    FUZZ_CHECK(header.from_rank == config_.rank);
    const auto to = static_cast<std::uint16_t>(header.token - kTokenTo);
    FUZZ_CHECK(to < config_.all_ranks() && to != config_.rank);
    FUZZ_CHECK(numbers_sent_[to].insert(header.packet_number).second);
    if (header.type == PacketType::kTilePull) {
      pulls_[to][decoded_.tile_pull.results ? 1 : 0] = decoded_.tile_pull;
      last_pull_ = static_cast<std::uint32_t>(header.packet_number);
    } else if (header.type == PacketType::kTileCall) {
      last_call_ = static_cast<std::uint32_t>(header.packet_number);
    } else if (header.type == PacketType::kTilePiece) {
      check_piece(to, decoded_.tile);
    }
    held_.push_back(frame);  // as a driver does, for a while
  }
  void check_piece(std::uint16_t to, const wire::TileHeader& piece) {
    const auto found = posted_.find(piece.op_seq);
    // An encoded result lies in scratch, and is sent when the op is done here.
    const bool kept = piece.result && piece.format != WireFormat::kSame;
    FUZZ_CHECK(!over_ && (config_.folds_only() ||
                          (found != posted_.end() && (found->second.active || kept))));
    FUZZ_CHECK(wire::payload_crc_ok(decoded_));
    const std::uint16_t owner = piece.result ? config_.rank : to;
    if (config_.folds_only() && !contents_known_) return;
    const std::vector<std::byte> right =
        contents_.wire_of(spec_of(piece.op_seq), piece.chunk, piece.result, owner, config_.rank);
    FUZZ_CHECK(!right.empty() && right.size() == decoded_.payload.size());
    FUZZ_CHECK(!contents_known_ || std::ranges::equal(right, decoded_.payload));
  }
  void release_held(std::size_t keep) {
    for (; held_.size() > keep; held_.pop_front()) rte_pktmbuf_free(held_.front());
  }

  Input& input_;
  bool formats_;
  collective::ShardConfig config_;
  TileContents contents_;
  std::map<std::uint64_t, Posted> posted_;  // outlives the shard
  std::unique_ptr<collective::Shard> shard_;
  wire::Packet decoded_;
  std::deque<rte_mbuf*> held_;
  std::vector<std::byte> last_;
  TimeNs now_ = 1'000'000'000;
  std::uint64_t number_ = 0;
  std::uint32_t last_pull_ = 0;
  std::uint32_t last_call_ = 0;
  /// The last that went to a rank, of parts and of results.
  std::map<std::uint16_t, std::array<wire::TilePullHeader, 2>> pulls_;
  std::map<std::pair<std::uint16_t, std::uint64_t>, std::uint32_t> taken_;  ///< by rank and op
  std::map<std::uint16_t, std::set<std::uint64_t>> numbers_sent_;
  std::uint64_t told_ = 0;  ///< the last op of which others told a rank without members
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
