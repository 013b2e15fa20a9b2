// SPDX-License-Identifier: BSD-3-Clause
// What a packet does.
#include <algorithm>
#include <cstring>

#include "base/collective_call.h"
#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/tiles/tile_memory.h"
#include "collective/tiles/tiles.h"

namespace gradwire::collective {

using wire::Drop;
using wire::PacketType;

namespace {

std::uint32_t low_half(const wire::Packet& packet) noexcept {
  return static_cast<std::uint32_t>(packet.common.packet_number);
}

}  // namespace

Drop Tiles::receive(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  const bool pulls = packet.common.type == PacketType::kTilePull;
  const std::uint16_t rank = packet.common.from_rank;
  if (pulls ? packet.tile_pull.again : packet.tile.again) {
    links_.end(rank).was_asked_again(config_.timeouts, now);
  }
  Drop drop = Drop::kNone;
  if (pulls) {
    drop = receive_pull(packet, now);
  } else if (packet.common.type == PacketType::kTileCall) {
    drop = receive_call(packet, now);
  } else {
    drop = receive_piece(packet, ecn_ce, now);
  }
  close_old(now);
  return drop;
}

bool Tiles::is_call_right(std::uint16_t rank, const wire::TileHeader& header) noexcept {
  const OpCall* ours = ops_.call(header.op_seq);
  const OpCall theirs = call_of(header);
  if (ours == nullptr || *ours == theirs) return true;
  if (!mismatch_) mismatch_ = Mismatch{rank, header.op_seq, *ours, theirs};
  return false;
}

Drop Tiles::receive_piece(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  const wire::TileHeader& piece = packet.tile;
  if (!is_call_right(packet.common.from_rank, piece)) return Drop::kNone;
  TileOp* op = table_.find(piece.op_seq);
  if (op == nullptr) return piece.op_seq <= over_ ? Drop::kDuplicate : Drop::kBadChunk;
  return piece.result ? receive_result(*op, packet, ecn_ce, now)
                      : receive_part(*op, packet, ecn_ce, now);
}

Drop Tiles::receive_part(TileOp& op, const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const std::uint32_t number = packet.tile.chunk;
  TileIn& in = table_.parts_in(op, rank);
  if (number >= in.granted) return Drop::kBadChunk;
  if (number < in.first || in.have.has(number - in.first)) return Drop::kDuplicate;
  const TileCut::Tile tile =
      op.cut.tile(config_.rank, config_.lane, number / op.cut.chunks_of_tile());
  const TileCut::Chunk chunk = op.cut.chunk_of(tile, number);
  if (packet.payload.size() != op.cut.wire_bytes(chunk.count)) return Drop::kBadChunk;
  if (!wire::payload_crc_ok(packet)) return Drop::kPayloadCrc;
  if (!owner_.take_part(op, rank, tile, chunk, packet.payload)) {
    failed_ = op.op_seq;
    return Drop::kNone;
  }
  in.began = true;
  in.late = false;
  if (pulls_.came(op, rank, TileWay::kParts, number, ecn_ce, now)) want_part_word(op, rank, false);
  std::uint32_t& missing = op.missing[chunk.tile % TileOp::kStartedMax];
  require(missing > 0, "a part that comes was missing");
  --missing;
  ++counters_.tile_pieces_received;
  counters_.tile_bytes_received += packet.payload.size();
  has_news(rank, now);
  pulls_.line_up(op, rank, TileWay::kParts);
  pull_more(now);
  return Drop::kNone;
}

Drop Tiles::receive_result(TileOp& op, const wire::Packet& packet, bool ecn_ce,
                           TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const std::uint32_t number = packet.tile.chunk;
  TileIn& in = table_.results_in(op, rank);
  if (!op.travels || number >= in.granted) return Drop::kBadChunk;
  if (number < in.first || in.have.has(number - in.first)) return Drop::kDuplicate;
  const TileCut::Tile tile = op.cut.tile(rank, config_.lane, number / op.cut.chunks_of_tile());
  const TileCut::Chunk chunk = op.cut.chunk_of(tile, number);
  if (packet.payload.size() != op.cut.wire_bytes(chunk.count)) return Drop::kBadChunk;
  if (!wire::payload_crc_ok(packet)) return Drop::kPayloadCrc;
  if (!store(op, tile, chunk, packet.payload)) {
    failed_ = op.op_seq;
    return Drop::kNone;
  }
  if (pulls_.came(op, rank, TileWay::kResults, number, ecn_ce, now)) {
    want_result_word(op, rank, false);
  }
  ++counters_.tile_pieces_received;
  counters_.tile_bytes_received += packet.payload.size();
  has_news(rank, now);
  const bool keeps = op.encodes || !has_members(rank);  // a place for each result
  // The owner need not ask whether it was taken. One that still sums tells more, which is pulled.
  const bool sums_more = op.sums && !keeps;
  if (in.first == in.ready && !in.complete() && !sums_more) want_result_word(op, rank, false);
  pulls_.line_up(op, rank, TileWay::kResults);
  note_taken(op, rank, now);
  // "All" may have to wait for an older op.
  if (keeps && in.complete() && peers_[rank].all < op.op_seq) want_result_word(op, rank, false);
  pull_more(now);
  return Drop::kNone;
}

bool Tiles::store(const TileOp& op, const TileCut::Tile& tile, const TileCut::Chunk& chunk,
                  std::span<const std::byte> payload) noexcept {
  require(op.travels && !op.done, "results are stored while their op's memory may be touched");
  if (op.encodes) return formats_.store(op, tile, chunk, payload);
  reduce::Entry entry = store_of(config_, op.spec, tile, chunk.at, chunk.count, payload.data());
  entry.streaming = op.streams;
  return folds_.backend().run(entry);
}

Drop Tiles::receive_call(const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::TileHeader& call = packet.tile;
  if (call.echo != 0) {
    (void)links_.end(rank).arrived(call.echo);
    links_.echoed(rank, call.echo, 0, now);
  }
  if (call.asks) links_.was_asked(rank);
  if (call.not_entered) {
    hear_not_entered(call.op_seq, rank);
    pull_more(now);
    return Drop::kNone;
  }
  if (!is_call_right(rank, call)) return Drop::kNone;
  TileOp* op = table_.find(call.op_seq);
  if (op == nullptr) {
    answer_of_none(packet);
    return Drop::kNone;
  }
  TileIn& in = table_.parts_in(*op, rank);
  // Repeated, it is no news: whoever answers in vain says nothing else.
  if (!in.began || in.late) has_news(rank, now);
  in.began = true;
  in.late = false;
  in.echo = low_half(packet);
  want_part_word(*op, rank, false);
  pulls_.line_up(*op, rank, TileWay::kParts);
  pull_more(now);
  return Drop::kNone;
}

void Tiles::hear_not_entered(std::uint64_t op_seq, std::uint16_t rank) noexcept {
  TileOp* op = table_.find(op_seq);
  if (op == nullptr) return;
  TileIn& in = table_.parts_in(*op, rank);
  // What has entered stays so: this word is older than what came of the op.
  if (in.began && !planted(PlantedBug::kTileNotEnteredAgain)) return;
  in.late = true;
  pulls_.give_back(in);
}

void Tiles::note_entered(const TileOp& op, std::uint16_t rank, TimeNs now) noexcept {
  TileIn& in = table_.parts_in(op, rank);
  in.began = true;
  if (!in.late) return;
  in.late = false;
  pulls_.line_up(op, rank, TileWay::kParts);
  pull_more(now);
}

Drop Tiles::receive_pull(const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::TilePullHeader& pull = packet.tile_pull;
  if (pull.echo != 0) {
    (void)links_.end(rank).arrived(pull.echo);
    links_.echoed(rank, pull.echo, 0, now);
  }
  if (pull.asks) links_.was_asked(rank);
  if (!pull.results && !has_members(rank)) hear_told(rank, pull.op_seq, now);
  if (pull.over != 0) hear_over(rank, pull.op_seq - (pull.over - 1u), now);
  if (pull.all) {
    const Drop drop = hear_all(pull.op_seq, rank, now);
    if (drop == Drop::kNone && pull.asks) {
      peers_[rank].over_wanted = std::max(peers_[rank].over_wanted, pull.op_seq);
      queue(rank);
    }
    return drop;
  }
  TileOp* op = table_.find(pull.op_seq);
  if (op == nullptr) {
    answer_of_none(packet);
    return Drop::kNone;
  }
  return pull.results ? pulled_by_puller(*op, packet, now) : pulled_by_owner(*op, packet, now);
}

void Tiles::take_grant(TileOut& out, const wire::TilePullHeader& pull) noexcept {
  require(pull.first >= out.first, "a grant goes on");
  out.wanted.shift(std::min(pull.first - out.first, ChunkSet::kChunks));
  out.first = pull.first;
  out.next = std::max(out.next, out.first);
  out.grant = std::max(out.grant, pull.grant);
  // What was never sent goes once, as it was granted.
  if (pull.repair) out.wanted |= ChunkSet(pull.wanted).below(out.next - out.first);
}

Drop Tiles::pulled_by_owner(TileOp& op, const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::TilePullHeader& pull = packet.tile_pull;
  TileOut& out = table_.parts_out(op, rank);
  TileIn& in = table_.results_in(op, rank);
  const std::uint64_t done = std::uint64_t{pull.done} * op.cut.chunks_of_tile();
  if (in.end == 0 || pull.grant > out.end || done > in.end) return Drop::kBadChunk;
  if (op.sums && done > pull.first) return Drop::kBadChunk;  // What is folded has come.
  note_entered(op, rank, now);
  if (out.call_owed) {
    const auto after_first = static_cast<std::int32_t>(pull.echo - out.first_call);
    const bool echoes = pull.echo != 0 && out.called && after_first >= 0;
    if (echoes || done == in.end) {
      out.call_owed = out.call_wanted = false;
      has_news(rank, now);
    }
  }
  if (pull.asks && pull.done > 0) {
    want_result_word(op, rank, false);
  } else if (pull.asks) {
    out.call_echo = low_half(packet);
    want_call(op, rank, false);
  }
  if (pull.first >= out.first) {
    if (pull.first > out.first || pull.grant > out.grant) has_news(rank, now);
    take_grant(out, pull);
  }
  if (done > in.ready) {
    in.ready = static_cast<std::uint32_t>(done);
    has_news(rank, now);
    if (op.travels) {
      pulls_.line_up(op, rank, TileWay::kResults);
      pull_more(now);
    } else {
      in.first = in.next = in.ready;
      want_result_word(op, rank, false);
      note_taken(op, rank, now);
    }
  }
  queue_pieces(op, rank, TileWay::kParts);
  return Drop::kNone;
}

Drop Tiles::pulled_by_puller(TileOp& op, const wire::Packet& packet, TimeNs now) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const wire::TilePullHeader& pull = packet.tile_pull;
  TileOut& out = table_.results_out(op, rank);
  const std::uint32_t folded = op.folded * op.cut.chunks_of_tile();
  if (out.end == 0 || pull.grant > folded) return Drop::kBadChunk;
  note_entered(op, rank, now);
  if (pull.asks) want_part_word(op, rank, false);
  if (pull.first < out.first || out.has_all) return Drop::kNone;  // It was overtaken.
  if (pull.first > out.first || pull.grant > out.grant) has_news(rank, now);
  if (!op.travels) {
    out.first = pull.first;
    return Drop::kNone;
  }
  results_back_ |= owner_.taken(op, out.first, pull.first);
  take_grant(out, pull);
  queue_pieces(op, rank, TileWay::kResults);
  return Drop::kNone;
}

Drop Tiles::hear_all(std::uint64_t op_seq, std::uint16_t rank, TimeNs now) noexcept {
  if (op_seq > entered_ || !has_members(rank)) return Drop::kBadChunk;
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TileOp& op = table_.at(i);
    if (op.op_seq <= op_seq && op.folded < op.tiles) return Drop::kBadChunk;
  }
  if (op_seq > peers_[rank].has_all) {
    peers_[rank].has_all = op_seq;
    has_news(rank, now);
  }
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    TileOp& op = table_.at(i);
    if (op.op_seq <= op_seq) note_puller_has_all(op, rank);
  }
  return Drop::kNone;
}

void Tiles::hear_over(std::uint16_t rank, std::uint64_t op_seq, TimeNs now) noexcept {
  TilePeer& peer = peers_[rank];
  if (peer.all_known == peer.all || op_seq <= peer.all_known) return;
  peer.all_known = std::min(op_seq, peer.all);
  if (peer.all_known == peer.all) {
    require(owing_ > 0, "a rank that knows all was owed that word");
    --owing_;
    peer.all_wanted = false;
  }
  has_news(rank, now);
}

bool Tiles::is_by_tiles(std::uint64_t op_seq) const noexcept {
  if (const Op* op = ops_.find(op_seq)) return op->shape == Shape::kTiles;
  const OpCall* call = ops_.call(op_seq);
  // Nobody knows any more what was called so long ago.
  if (call == nullptr) return true;
  const ShapeCall shape{call->collective(), call->datatype(), call->root,
                        call->count,        call->redop(),    call->wire()};
  const auto whole = whole_count({.collective = shape.collective, .count = shape.count},
                                 config_.processes().count());
  return shape_for(config_.shape_group(), *whole * element_bytes(shape.datatype), shape) ==
         Shape::kTiles;
}

void Tiles::answer_of_none(const wire::Packet& packet) noexcept {
  const std::uint16_t rank = packet.common.from_rank;
  const bool pulls = packet.common.type == PacketType::kTilePull;
  const wire::TilePullHeader& pull = packet.tile_pull;
  const std::uint64_t op_seq = pulls ? pull.op_seq : packet.tile.op_seq;
  const bool by_owner = pulls && !pull.results;
  const bool asks = pulls ? pull.asks || (by_owner && pull.grant > pull.first) : packet.tile.asks;
  TilePeer& peer = peers_[rank];
  const bool by_tiles = ops_.was_posted(op_seq) && is_by_tiles(op_seq);
  if (!ops_.was_posted(op_seq) || (by_tiles && op_seq > entered_)) {
    // A puller who asks is told as well: the answer ends its repeats of what it owns.
    if (pulls && (by_owner || asks)) peer.asked_early = std::max(peer.asked_early, op_seq);
    if (!asks) return;
    peer.not_entered = op_seq;
    peer.not_entered_echo = pulls ? low_half(packet) : 0;
  } else if (!asks) {
    return;
  } else if (!by_tiles) {
    peer.other_call = op_seq;
    peer.other_call_echo = pulls ? low_half(packet) : 0;
  } else if ((pulls && pull.results) || config_.folds_only()) {
    peer.over_wanted = std::max(peer.over_wanted, op_seq);
  } else if (peer.all != 0) {
    peer.all_wanted = true;
  }
  queue(rank);
}

}  // namespace gradwire::collective
