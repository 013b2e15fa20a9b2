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
#include <map>
#include <utility>
#include <vector>

#include "fuzz/hostile_peers.h"
#include "fuzz/input.h"
#include "fuzz/repair.h"
#include "fuzz/tile_group.h"
#include "fuzz/tile_shard.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using wire::PacketType;

constexpr std::size_t kPayloadMax = 640;

class Run {
 public:
  explicit Run(Input& input) : input_(input), shard_(input) {
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
        return config_.folds_only() ? tell_of_next() : shard_.post();
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
        shard_.pass(static_cast<TimeNs>(input_.u8()) << input_.pick(24));
        return;
      case 18:
      case 19:
      case 20: {
        const bool idle = input_.pick(2) != 0;
        return shard_.poll(idle, input_.pick(65));
      }
      case 21:
        return keep_alive();
      case 22:
        return shard_.poll(true, collective::OutboxSide::kCapacity);
      default:
        break;
    }
    switch (input_.pick(16)) {
      case 0:
        return shard_.leave();
      case 1:
        return bye();
      case 2:
        return raw();
      default:
        shard_.release_held(0);
        shard_.flush();
    }
  }

  void finish() {
    shard_.leave();
    for (int round = 0; round < 400 && !shard_.closed(); ++round) {
      shard_.poll(true, collective::OutboxSide::kCapacity);
      shard_.pass(10'000'000);
    }
    FUZZ_CHECK(shard_.closed());
    shard_.end();
    for (rte_mempool* pool : {large_pool, small_pool, control_pool})
      FUZZ_CHECK(rte_mempool_in_use_count(pool) == 0);
  }

 private:
  std::uint16_t some_peer() {
    const std::uint32_t ranks = config_.all_ranks();
    return static_cast<std::uint16_t>((config_.rank + 1 + input_.pick(ranks - 1)) % ranks);
  }
  /// Ops that this rank is in, or that others have told one without members of.
  std::uint64_t ops() const { return config_.folds_only() ? told_ : shard_.posted(); }
  std::uint64_t op_near() {
    const std::uint64_t posted = ops();
    const std::uint64_t back = std::min<std::uint64_t>(input_.pick(6), posted + 1);
    return std::max<std::uint64_t>(posted + 2 - back, 1);
  }

  void hello(PacketType type, std::uint16_t rank) {
    shard_.deliver(greeting(config_, type, shard_.common(rank)));
  }
  /// So that silence does not end every run.
  void keep_alive() {
    for (std::uint16_t rank = 0; rank < config_.all_ranks(); ++rank) {
      if (rank == config_.rank) continue;
      std::array<std::byte, 128> out{};
      shard_.deliver({out.data(), encode_ping(out, shard_.common(rank))});
    }
  }
  void bye() {
    std::array<std::byte, 128> out{};
    const std::uint16_t rank = neighbor(config_, input_.pick(2) == 0);
    shard_.deliver({out.data(), encode_bye(out, PacketType::kBye, shard_.common(rank),
                                           {input_.small_or_any()})});
  }

  /// All ranks tell of the next op of which one without members owns something.
  void tell_of_next() {
    const std::uint64_t before = told_;
    do {
      ++told_;
    } while (told_ - before < 200 && (!shard_.is_by_tiles(shard_.spec_of(told_)) ||
                                      shard_.chunks_of(told_, config_.rank) == 0));
    wire::TileHeader call = header_of(shard_.spec_of(told_));
    call.since = static_cast<std::uint8_t>(told_ - before);
    const std::uint8_t less = input_.u8();
    for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) {
      if ((less >> rank & 1) == 0) tell(rank, call);
    }
  }
  void tell(std::uint16_t rank, const wire::TileHeader& header) {
    std::array<std::byte, 128> out{};
    shard_.deliver({out.data(), encode_tile_call(out, shard_.common(rank), header)});
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
    const std::vector<std::byte> right = shard_.contents().wire_of(
        shard_.spec_of(header.op_seq), header.chunk, header.result, owner, rank);
    std::ranges::copy(right, out.begin() + wire::kHeaderBytes);
    bytes = bytes == 0 ? right.size() : std::min(bytes, kPayloadMax);
    const bool damaged = input_.pick(32) == 31;
    wire::encode_tile_piece(
        std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes),
        shard_.common(rank), header,
        wire::crc32c({out.data() + wire::kHeaderBytes, bytes}) + (damaged ? 1 : 0));
    shard_.deliver({out.data(), wire::kHeaderBytes + bytes});
  }
  /// What the last pull that went to the rank asks for, or a part of it.
  void answer(std::uint16_t rank, bool in_part) {
    const TileShard::LastPulls* found = shard_.pulls_of(rank);
    if (found == nullptr) return;
    for (const wire::TilePullHeader& pull : TileShard::LastPulls(*found)) {
      if (pull.op_seq == 0 || pull.all) continue;
      wire::TileHeader header = header_of(shard_.spec_of(pull.op_seq));
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
      const std::uint32_t chunks = config_.folds_only() ? 0 : shard_.chunks_of(op_seq, rank);
      if (rank == config_.rank || chunks == 0 || (less & 0x83) == 0x83) continue;
      const bool sums = reduces(shard_.spec_of(op_seq).collective);
      wire::TilePullHeader told{.op_seq = op_seq};
      told.done = shard_.cut_of_op(op_seq).tiles(rank, config_.lane);
      if ((less & 0x44) == 0x44) told.done /= 2;
      told.first = told.grant = sums ? chunks : 0;
      // It may have been asked for what it gives before.
      if (sums && chunks <= wire::kTileGrantMax && (less & 8) != 0) {
        wire::TilePullHeader asks{.op_seq = op_seq, .grant = chunks};
        pull(rank, asks);
        shard_.poll(true, collective::OutboxSide::kCapacity);
        asks.repair = (less & 16) != 0;
        for (std::uint32_t i = 0; asks.repair && i < chunks; ++i) {
          asks.wanted[i / 64] |= std::uint64_t{1} << i % 64;
        }
        if (asks.repair) pull(rank, asks);
      }
      pull(rank, told);
    }
    for (std::uint32_t times = 1 + (less & 15); times > 0; --times) {
      shard_.poll(true, collective::OutboxSide::kCapacity);
      for (std::uint16_t rank = 0; rank < config_.all_ranks(); ++rank) answer(rank, false);
      for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) take_results(rank, op_seq);
    }
    shard_.poll(true, collective::OutboxSide::kCapacity);
    for (std::uint16_t rank = 0; rank < config_.nranks; ++rank) {
      if (rank == config_.rank || (less & 0x30) == 0x30) continue;
      pull(rank, {.op_seq = op_seq, .asks = (less & 1) != 0, .results = true, .all = true});
    }
  }
  /// It pulls what it was told to be done, and says that it has what it pulled the last time.
  void take_results(std::uint16_t rank, std::uint64_t op_seq) {
    const TileShard::LastPulls* found = shard_.pulls_of(rank);
    if (found == nullptr || (*found)[0].op_seq != op_seq) return;
    if (shard_.spec_of(op_seq).collective == Collective::kReduce) return;
    std::uint32_t& taken = taken_[{rank, op_seq}];
    const std::uint32_t done = (*found)[0].done * shard_.cut_of_op(op_seq).chunks_of_tile();
    wire::TilePullHeader header{.op_seq = op_seq, .first = taken, .results = true};
    header.grant = std::max(taken, std::min(done, taken + wire::kTileGrantMax));
    taken = header.grant;
    pull(rank, header);
  }
  std::uint64_t oldest_unfinished() const {
    return config_.folds_only() ? std::max<std::uint64_t>(told_, 1) : shard_.oldest_unfinished();
  }
  void any_piece() {
    const std::uint16_t rank = some_peer();
    const std::uint8_t change = input_.u8();
    collective::OpSpec spec =
        shard_.spec_of((change & 1) != 0 ? input_.small_or_any() | 1 : op_near());
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
    wire::TileHeader header = header_of(shard_.spec_of(op_seq));
    header.echo = (change & 2) != 0 ? input_.u32() : shard_.last_pull();
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
      shard_.forget_contents();
    }
    tell(rank, header);
  }

  void pull(std::uint16_t rank, const wire::TilePullHeader& header) {
    std::array<std::byte, 256> out{};
    shard_.deliver({out.data(), encode_tile_pull(out, shard_.common(rank), header)});
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
    header.echo = (change & 16) != 0 ? shard_.last_call() : 0;
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
    const std::uint32_t chunks = shard_.chunks_of(op_seq, rank);
    wire::TilePullHeader header = some_pull(chunks, any);
    if (!any) header.op_seq = op_seq;
    if (!any && !reduces(shard_.spec_of(op_seq).collective)) header.first = header.grant = 0;
    if (header.first == header.grant) header.repair = false, header.wanted = {};
    header.done = any && input_.pick(4) == 0 ? input_.u32() : input_.u8() % (chunks + 1);
    if (input_.pick(4) == 0) header.over = static_cast<std::uint16_t>(input_.small_or_any());
    pull(rank, header);
  }
  void pullers_pull(bool any) {
    const std::uint64_t op_seq = op_near();
    wire::TilePullHeader header = some_pull(shard_.chunks_of(op_seq, config_.rank), any);
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
    const std::size_t size = shard_.last_given().size();
    if (size > packet.size() || size < wire::kHeaderBytes) return;
    std::ranges::copy(shard_.last_given(), packet.begin());
    // Some bytes of the last packet differ, but not whose it is.
    for (std::size_t i = 8; i < 46 && i < bytes.size(); ++i) packet[i] ^= bytes[i] & bytes[i - 1];
    repair_packet({packet.data(), size});
    // A piece of which the op or the chunk was changed has bytes of another one.
    shard_.forget_contents();
    const std::vector<std::byte> changed(packet.begin(), packet.begin() + static_cast<long>(size));
    shard_.deliver(changed);
  }
  void again() {
    const std::vector<std::byte> packet = shard_.last_given();
    if (!packet.empty()) shard_.deliver(packet);
  }

  Input& input_;
  TileShard shard_;
  const collective::ShardConfig& config_ = shard_.config();
  std::map<std::pair<std::uint16_t, std::uint64_t>, std::uint32_t> taken_;  ///< by rank and op
  std::uint64_t told_ = 0;  ///< the last op of which others told a rank without members
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
