// SPDX-License-Identifier: BSD-3-Clause
// Packets, and when the next one goes.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/planted_bug.h"
#include "collective/tiles/tile_memory.h"
#include "collective/tiles/tiles.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

/// All of it is 0 but the number.
wire::TileHeader not_entered(std::uint64_t op_seq) noexcept {
  wire::TileHeader header;
  header.op_seq = op_seq;
  header.datatype = DataType{};
  header.redop = RedOp{};
  header.collective = Collective{};
  header.root = 0;
  header.not_entered = true;
  return header;
}

}  // namespace

bool Tiles::run(TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  if (now >= watched_.next_due()) {
    look_at_watched(now);
    worked = true;
  }
  if (TileOp* op = owner_.foldable()) {
    worked = true;
    if (!owner_.fold_next(*op)) {
      failed_ = op->op_seq;
      return true;
    }
    note_folded(*op, now);
    start_tiles(now);
  }
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    if (is_telling_due(table_.at(i), now)) tell(table_.at(i));
  }
  worked |= spread(now);
  const std::uint32_t sent = turns_.run(
      kTileBurst, [&] { return send_word(now, out); }, [&] { return send_next_piece(now, out); });
  const bool waits = !words_.empty() || (!sending_.empty() && now >= paced_until_);
  turns_.note(sent, waits);
  close_old(now);
  return worked || sent > 0;
}

TimeNs Tiles::deadline(TimeNs now) const noexcept {
  if (!words_.empty() || owner_.foldable() != nullptr) return now;
  TimeNs due = watched_.next_due();
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TileOp& op = table_.at(i);
    if (op.spread_left > 0 || (op.keeps && is_telling_due(op, now))) return now;
    if (op.folded > op.told) due = std::min(due, op.rose_at + kTellNs);
  }
  return sending_.empty() ? due : std::min(due, std::max(now, paced_until_));
}

bool Tiles::send_word(TimeNs now, Outbox& out) noexcept {
  while (!words_.empty()) {
    const std::uint16_t rank = words_.front();
    OutboxSide& box = links_.end(rank).any_side(out);
    if (box.full()) return false;
    const Sent outcome = send_word_to(rank, now, box);
    if (outcome == Sent::kBlocked) return false;
    words_.pop();
    peers_[rank].queued = false;
    if (outcome == Sent::kNothing) continue;
    // There may be more to say there: others have their turn first.
    queue(rank);
    return true;
  }
  return false;
}

/// Whether what was said is to be said again, since the rank has asked several times. Whatever else
/// is to be said goes first: an answer that is repeated for ever, as from a slow port that is asked
/// as often as it answers, would keep it waiting for ever (simulator, tiles 8620).
bool Tiles::answers_again(std::uint16_t rank) noexcept {
  return links_.answered(rank) && !has_word(rank);
}

bool Tiles::has_word(std::uint16_t rank) const noexcept {
  const TilePeer& peer = peers_[rank];
  if (peer.not_entered != 0 || peer.other_call != 0 || peer.over_wanted != 0 || peer.all_wanted) {
    return true;
  }
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TileOp& op = table_.at(i);
    if (table_.parts_out(op, rank).call_wanted || table_.parts_in(op, rank).word_wanted ||
        table_.results_in(op, rank).word_wanted) {
      return true;
    }
  }
  return false;
}

Tiles::Sent Tiles::send_word_to(std::uint16_t rank, TimeNs now, OutboxSide& box) noexcept {
  TilePeer& peer = peers_[rank];
  if (peer.not_entered != 0) {
    wire::TileHeader call = not_entered(peer.not_entered);
    call.echo = peer.not_entered_echo;
    const Sent sent = send_call(rank, call, now, box, nullptr);
    if (sent == Sent::kYes) {
      const std::uint64_t said = std::exchange(peer.not_entered, 0);
      if (answers_again(rank)) peer.not_entered = said;
    }
    return sent;
  }
  if (peer.other_call != 0) {
    const OpCall* called = ops_.call(peer.other_call);
    if (called == nullptr) {
      peer.other_call = 0;
      return send_word_to(rank, now, box);
    }
    wire::TileHeader call = header_of<wire::TileHeader>(peer.other_call, *called);
    call.echo = peer.other_call_echo;
    const Sent sent = send_call(rank, call, now, box, nullptr);
    if (sent == Sent::kYes) {
      const std::uint64_t said = std::exchange(peer.other_call, 0);
      if (answers_again(rank)) peer.other_call = said;
    }
    return sent;
  }
  if (peer.over_wanted != 0) {
    wire::TilePullHeader pull;
    pull.op_seq = peer.over_wanted;
    pull.over = over_for(rank, pull.op_seq);
    const Sent sent = send_pull(rank, pull, box);
    if (sent == Sent::kYes) {
      const std::uint64_t said = std::exchange(peer.over_wanted, 0);
      if (answers_again(rank)) peer.over_wanted = said;
    }
    return sent;
  }
  if (peer.all_wanted) {
    wire::TilePullHeader pull;
    pull.op_seq = peer.all;
    pull.results = pull.all = true;
    pull.asks = peer.all_asks;
    const Sent sent = send_pull(rank, pull, box);
    if (sent != Sent::kYes) return sent;
    peer.all_wanted = false;
    peer.all_wanted = !std::exchange(peer.all_asks, false) && answers_again(rank);
    return sent;
  }
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TileOp& op = table_.at(i);
    TileOut& out = table_.parts_out(op, rank);
    if (out.call_wanted) {
      wire::TileHeader call = header_of<wire::TileHeader>(op.op_seq, op.call);
      call.echo = out.call_echo;
      call.asks = out.call_asks;
      call.since = out.since;
      std::uint32_t number = 0;
      const Sent sent = send_call(rank, call, now, box, &number);
      if (sent != Sent::kYes) return sent;
      if (!out.called) out.first_call = number;
      out.called = true;
      out.call_wanted = false;
      out.call_wanted = !std::exchange(out.call_asks, false) && answers_again(rank);
      out.call_echo = 0;
      return sent;
    }
    if (table_.parts_in(op, rank).word_wanted) {
      return send_pull(op, rank, TileWay::kParts, box);
    }
    if (table_.results_in(op, rank).word_wanted) {
      return send_pull(op, rank, TileWay::kResults, box);
    }
  }
  return Sent::kNothing;
}

std::uint16_t Tiles::over_for(std::uint16_t rank, std::uint64_t op_seq) const noexcept {
  const std::uint64_t known = std::min(peers_[rank].has_all, op_seq);
  return known == 0 || op_seq - known >= UINT16_MAX
             ? std::uint16_t{0}
             : static_cast<std::uint16_t>(op_seq - known + 1);
}

Tiles::Sent Tiles::send_pull(const TileOp& op, std::uint16_t rank, TileWay way,
                             OutboxSide& box) noexcept {
  const bool parts = way == TileWay::kParts;
  TileIn& in = table_.in(op, rank, way);
  wire::TilePullHeader pull;
  pull.op_seq = op.op_seq;
  pull.first = in.first;
  pull.grant = in.next;
  pull.asks = in.asks;
  pull.results = !parts;
  pull.repair = !in.again.empty();
  pull.wanted = in.again.words();
  if (parts) {
    pull.done = op.folded;
    pull.echo = in.echo;
    pull.over = over_for(rank, op.op_seq);
  } else if (in.complete() && peers_[rank].all >= op.op_seq) {
    // What it would say of this op, "all" says of those before, too.
    pull = {.op_seq = peers_[rank].all, .asks = in.asks, .results = true, .all = true};
  }
  const Sent sent = send_pull(rank, pull, box);
  if (sent != Sent::kYes) return sent;
  if (parts) table_.results_out(op, rank).told = op.folded;
  in.word_wanted = false;
  in.word_wanted = !std::exchange(in.asks, false) && answers_again(rank);
  in.again.clear();
  if (!in.word_wanted) in.echo = 0;
  return sent;
}

Tiles::Sent Tiles::send_pull(std::uint16_t rank, wire::TilePullHeader pull,
                             OutboxSide& box) noexcept {
  LinkEnd& end = links_.end(rank);
  // An answer goes back the way that the question came.
  const bool pulls = pull.grant > pull.first || pull.repair;
  const PathIndex path = pull.asks || pulls ? end.path() : end.answer_by();
  pull.again = pull.asks && links_.says_again(rank, timeouts_of(rank));
  const bool sent = end.send_by(path, config_.control_pool, box, [&](std::span<std::byte> room) {
    return wire::encode_tile_pull(room, end.header(PacketType::kTilePull), pull);
  });
  if (!sent) return Sent::kBlocked;
  if (pull.asks) links_.asked(rank);
  counters_.tile_asks += pull.asks ? 1 : 0;
  ++counters_.tile_words_sent;
  return Sent::kYes;
}

Tiles::Sent Tiles::send_call(std::uint16_t rank, const wire::TileHeader& call, TimeNs now,
                             OutboxSide& box, std::uint32_t* number) noexcept {
  LinkEnd& end = links_.end(rank);
  const PathIndex path = call.asks ? end.path() : end.answer_by();
  const bool sent = end.send_by(path, config_.control_pool, box, [&](std::span<std::byte> room) {
    const wire::CommonHeader common = end.header(PacketType::kTileCall);
    if (number != nullptr) *number = static_cast<std::uint32_t>(common.packet_number);
    if (call.asks) links_.time(rank, common.packet_number, now);
    wire::TileHeader header = call;
    header.again = call.asks && links_.says_again(rank, timeouts_of(rank));
    return wire::encode_tile_call(room, common, header);
  });
  if (!sent) return Sent::kBlocked;
  if (call.asks) links_.asked(rank);
  counters_.tile_asks += call.asks ? 1 : 0;
  ++counters_.tile_words_sent;
  return Sent::kYes;
}

void Tiles::queue_pieces(const TileOp& op, std::uint16_t rank, TileWay way) noexcept {
  TileOut& out = table_.out(op, rank, way);
  if (out.sending || !out.has_to_send()) return;
  out.sending = true;
  const std::uint32_t item = table_.place_of(op) << 16 | rank;
  require(sending_.push(item * 2 + (way == TileWay::kResults ? 1 : 0)),
          "a rank is queued for its pieces once for each op and way");
}

bool Tiles::send_next_piece(TimeNs now, Outbox& out) noexcept {
  while (!sending_.empty()) {
    const std::uint32_t item = sending_.front();
    const TileWay way = item % 2 == 0 ? TileWay::kParts : TileWay::kResults;
    const auto rank = static_cast<std::uint16_t>(item / 2 & 0xffff);
    const TileOp& op = table_.in_place(item >> 17);
    TileOut& ends = table_.out(op, rank, way);
    const Sent outcome = send_piece(op, rank, way, now, out);
    if (outcome == Sent::kBlocked) return false;
    sending_.pop();
    ends.sending = false;
    if (outcome == Sent::kNothing) continue;
    // The next one has its turn.
    queue_pieces(op, rank, way);
    return true;
  }
  return false;
}

bool Tiles::skip_to_piece(const TileOp& op, std::uint16_t rank, TileWay way,
                          std::uint32_t& chunk) noexcept {
  const bool parts = way == TileWay::kParts;
  TileOut& out = table_.out(op, rank, way);
  // What the owner has folded it never needs again, and results may lie there by now.
  const std::uint32_t floor =
      parts && !planted(PlantedBug::kTileLatePart) ? table_.results_in(op, rank).ready : 0;
  const std::uint16_t owner = parts ? rank : config_.rank;
  const auto is_there = [&](std::uint32_t number) {
    return number < out.whole || op.cut.chunk(owner, config_.lane, number).count != 0;
  };
  while (!out.wanted.empty()) {
    const std::uint32_t bit = out.wanted.lowest();
    chunk = out.first + bit;
    // Numbers that a short tile lacks are never sent, whoever wants them.
    if (chunk >= floor && is_there(chunk)) return true;
    out.wanted.remove(bit);
  }
  for (out.next = std::max(out.next, floor); out.next < out.grant; ++out.next) {
    chunk = out.next;
    if (is_there(chunk)) return true;
  }
  return false;
}

bool Tiles::make_piece(const TileOp& op, TileWay way, const TileCut::Tile& tile,
                       const TileCut::Chunk& chunk, std::byte* payload) noexcept {
  if (way == TileWay::kResults && op.keeps) {
    std::memcpy(payload, owner_.result(op, chunk), op.cut.wire_bytes(chunk.count));
    return true;
  }
  if (way == TileWay::kResults && op.sums) {
    const ChunkMemory memory = memory_of(config_, op.spec, tile, chunk.at);
    const std::size_t width = element_bytes(op.spec.datatype);
    std::memcpy(payload, memory.outputs[0] + memory.first_output * width, chunk.count * width);
    return true;
  }
  if (op.spec.wire != WireFormat::kSame) return formats_.make_part(op, tile, chunk, payload);
  return folds_.backend().run(load_of(config_, op.spec, tile, chunk.at, chunk.count, payload));
}

Tiles::Sent Tiles::send_piece(const TileOp& op, std::uint16_t rank, TileWay way, TimeNs now,
                              Outbox& out) noexcept {
  LinkEnd& end = links_.end(rank);
  OutboxSide& box = end.any_side(out);
  if (box.full() || !end.has_key()) return Sent::kBlocked;
  std::uint32_t number = 0;
  if (!skip_to_piece(op, rank, way, number)) return Sent::kNothing;
  const bool parts = way == TileWay::kParts;
  const std::uint16_t owner = parts ? rank : config_.rank;
  const TileCut::Tile tile = op.cut.tile(owner, config_.lane, number / op.cut.chunks_of_tile());
  const TileCut::Chunk chunk = op.cut.chunk_of(tile, number);
  const std::uint32_t bytes = op.cut.wire_bytes(chunk.count);
  // It goes the way that the pulls come: of pieces that are lost this rank hears nothing else.
  const PathIndex path = end.back();
  const wire::FrameTemplate& to = end.frame_of(path);
  const auto wire_bytes = static_cast<std::uint32_t>(to.bytes() + wire::kHeaderBytes) +
                          bytes * config_.payload_scale + end.tag_bytes();
  if (!pacer_.may_send(now, wire_bytes)) {
    paced_until_ = pacer_.time_for(now, wire_bytes);
    return Sent::kBlocked;
  }
  std::byte* payload = nullptr;
  rte_mbuf* mbuf = buffers_.alloc_on_host(payload);
  if (mbuf == nullptr) return Sent::kBlocked;
  if (!make_piece(op, way, tile, chunk, payload)) {
    rte_pktmbuf_free(mbuf);
    failed_ = op.op_seq;
    return Sent::kBlocked;
  }
  const auto packet = frame_around(*mbuf, payload, bytes, to, end.port_of(path));
  wire::TileHeader piece = header_of<wire::TileHeader>(op.op_seq, op.call);
  piece.chunk = number;
  piece.result = !parts;
  wire::encode_tile_piece(packet, end.header(PacketType::kTilePiece), piece,
                          wire::crc32c({payload, bytes}));
  end.put(mbuf, to, payload, box);
  pacer_.on_sent(now, wire_bytes);
  TileOut& ends = table_.out(op, rank, way);
  if (number >= ends.next) {
    ends.next = number + 1;
  } else {
    ends.wanted.remove(number - ends.first);
  }
  ++counters_.tile_pieces_sent;
  return Sent::kYes;
}

}  // namespace gradwire::collective
