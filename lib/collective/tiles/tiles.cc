// SPDX-License-Identifier: BSD-3-Clause
// Ops: they enter, are told of, are done, are over.
#include "collective/tiles/tiles.h"

#include <algorithm>

#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/tiles/tile_memory.h"

namespace gradwire::collective {
namespace {

/// Ranks that are looked at in a round, since there is more to pull there or to tell.
constexpr std::uint32_t kLooksInRound = 64;
/// Owners tell of what is done when it is so many chunks of each rank.
constexpr std::uint32_t kTellChunks = 8;

/// The most chunks on their way from one rank, each way: who posts late has been asked by all
/// owners, and they may ask all together when it says that it has posted.
std::uint32_t from_each_of(const ShardConfig& config) {
  const std::uint32_t others = std::max(config.nranks - 1u, 1u);
  const std::uint32_t share = (2 * config.window_packets + others - 1) / others;
  return std::clamp(share, 2u, ChunkSet::kChunks);
}

}  // namespace

Tiles::Tiles(const ShardConfig& config, PeerLinks& links, PullWindow& window,
             const PacketBuffers& buffers, OpTable& ops, FoldQueue& folds, ToldOrder& told_order,
             ShardCounters& counters)
    : config_(config),
      links_(links),
      buffers_(buffers),
      ops_(ops),
      folds_(folds),
      told_order_(told_order),
      counters_(counters),
      table_(config.all_ranks()),
      formats_(config),
      owner_(config, table_, folds, formats_),
      pulls_(config, table_, links, window, counters, from_each_of(config)),
      peers_(config.all_ranks()),
      since_(config.folds_only() ? 0 : std::size_t{config.max_active_ops} * config.folding_ranks),
      waiting_(config.max_active_ops),
      done_(config.max_active_ops),
      words_(config.all_ranks()),
      sending_(std::size_t{2} * TileOps::kOpsMax * config.all_ranks()),
      watched_(config.all_ranks()),
      pacer_(config.sender.rate_bps, config.sender.burst_bytes) {
  links_.add(*this);
}

void Tiles::post(std::uint64_t op_seq, TimeNs now) noexcept {
  require(waiting_.push(op_seq), "an op that waits to enter has a place");
  if (!since_.empty()) keep_since(*ops_.find(op_seq));
  enter_more(now);
}

bool Tiles::pop_done(std::uint64_t& op_seq) noexcept {
  if (done_.empty()) return false;
  op_seq = done_.front();
  done_.pop();
  return true;
}

void Tiles::enter_more(TimeNs now) noexcept {
  bool entered = false;
  while (!table_.full() && !waiting_.empty()) {
    const Op* op = ops_.find(waiting_.front());
    require(op != nullptr, "an op that waits to enter is active");
    waiting_.pop();
    enter(*op, now);
    entered = true;
  }
  if (!entered) return;
  start_tiles(now);
  close_old(now);
}

void Tiles::enter(const Op& called, TimeNs now) noexcept {
  TileOp& op = table_.open();
  op.op_seq = entered_ = called.spec.op_seq;
  op.spec = called.spec;
  op.call = called.call;
  op.cut = cut_of(config_, called.spec);
  require(op.cut.supported(), "an op by tiles was planned that cannot be cut");
  op.sums = reduces(called.spec.collective);
  op.travels = called.spec.collective == Collective::kAllReduce ||
               called.spec.collective == Collective::kAllGather;
  op.encodes = op.sums && op.travels && called.spec.wire != WireFormat::kSame;
  op.keeps = op.encodes || config_.folds_only();
  op.streams = called.record.bytes >= config_.streaming_bytes;
  owner_.begin(op);
  for (std::uint32_t ahead = 1; ahead <= others(); ++ahead) begin_with(op, other(ahead), now);
  finish_if_done(op);
}

void Tiles::begin_with(TileOp& op, std::uint16_t rank, TimeNs now) noexcept {
  const bool waited = waits_for(rank);
  // One without members owns alone.
  const auto own =
      static_cast<std::uint32_t>(has_members(rank) ? op.cut.chunks(config_.rank, config_.lane) : 0);
  const auto theirs =
      static_cast<std::uint32_t>(config_.folds_only() ? 0 : op.cut.chunks(rank, config_.lane));
  const std::uint32_t own_whole = op.cut.whole_chunks(config_.rank, config_.lane);
  const std::uint32_t whole = op.cut.whole_chunks(rank, config_.lane);
  table_.parts_in(op, rank).begin(op.sums ? own : 0, own_whole);
  table_.parts_out(op, rank).begin(op.sums ? theirs : 0, whole);
  table_.results_in(op, rank).begin(theirs, whole);
  table_.results_out(op, rank).begin(own, own_whole);
  if (theirs != 0) ++op.owners_left;
  if (own != 0) ++op.pullers_left;
  if (!waited && waits_for(rank)) links_.begin_wait(rank, *this, now);
  if (theirs == 0) return;
  TileOut& out = table_.parts_out(op, rank);
  if (!has_members(rank)) {
    out.since = since_[since_place(op.op_seq, rank)];
    if (!planted(PlantedBug::kFoldingHostNotTold)) out.offer = TileOffer::kWaits;
  }
  if (peers_[rank].asked_early < op.op_seq) return offer_more(rank, now);
  // It has entered the op, and waits for this rank.
  out.offer = TileOffer::kNone;
  out.call_owed = !planted(PlantedBug::kTilePostNotTold);
  want_call(op, rank, false);
  watch(rank, now);
}

void Tiles::start_tiles(TimeNs now) noexcept {
  while (TileOp* op = owner_.start_next()) begin_spread(*op);
  pull_more(now);
}

void Tiles::note_folded(TileOp& op, TimeNs now) noexcept {
  require(op.folded <= op.tiles && op.told < op.folded, "a tile was folded of which nobody knows");
  moved_ = true;
  if (op.folded == op.told + 1) op.rose_at = now;
  if (is_telling_due(op, now)) tell(op);
  finish_if_done(op);
}

bool Tiles::is_telling_due(const TileOp& op, TimeNs now) const noexcept {
  if (op.folded == op.told) return false;
  const std::uint32_t untold = op.folded - op.told;
  return op.folded == op.tiles || now - op.rose_at >= kTellNs ||
         untold * op.cut.chunks_of_tile() >= kTellChunks ||
         (op.keeps && owner_.wants_results_back(untold));
}

void Tiles::tell(TileOp& op) noexcept {
  op.told = op.folded;
  begin_spread(op);
}

void Tiles::begin_spread(TileOp& op) noexcept { op.spread_left = with_members(); }

bool Tiles::spread(TimeNs now) noexcept {
  std::uint32_t looks = 0;
  for (std::uint32_t i = 0; i < table_.size() && looks < kLooksInRound; ++i) {
    TileOp& op = table_.at(i);
    for (; op.spread_left > 0 && looks < kLooksInRound; --op.spread_left, ++looks) {
      // Owners do not all begin at the same rank.
      look_at_rank(op, other(op.spread_at + 1u), now);
      op.spread_at = static_cast<std::uint16_t>((op.spread_at + 1) % with_members());
    }
  }
  if (looks > 0) pull_more(now);
  return looks > 0;
}

void Tiles::look_at_rank(TileOp& op, std::uint16_t rank, TimeNs now) noexcept {
  TileIn& in = table_.parts_in(op, rank);
  in.ready = std::min(op.started * op.cut.chunks_of_tile(), in.end);
  pulls_.line_up(op, rank, TileWay::kParts);
  const TileOut& out = table_.results_out(op, rank);
  if (out.end == 0 || out.has_all || out.told >= op.told) return;
  watch(rank, now);
  // The pull for which it waits says that, too, unless results have places of their own.
  if (in.in_line && !op.keeps && op.folded < op.tiles) return;
  want_part_word(op, rank, false);
}

void Tiles::note_taken(TileOp& op, std::uint16_t owner, TimeNs now) noexcept {
  if (!table_.results_in(op, owner).complete()) return;
  require(op.owners_left > 0, "an owner's results are complete once");
  --op.owners_left;
  // "All" speaks of the ops before, too.
  TilePeer& peer = peers_[owner];
  std::uint64_t all = peer.all;
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TileIn& in = table_.results_in(table_.at(i), owner);
    if (!in.complete()) break;
    if (in.end != 0) all = std::max(all, table_.at(i).op_seq);
  }
  if (all > peer.all) {
    if (peer.all == peer.all_known) ++owing_;
    peer.all = all;
    want_all(owner, false);
    watch(owner, now);
  }
  finish_if_done(op);
}

void Tiles::note_puller_has_all(TileOp& op, std::uint16_t puller) noexcept {
  TileOut& out = table_.results_out(op, puller);
  if (out.end == 0 || out.has_all) return;
  out.has_all = true;
  results_back_ |= owner_.taken(op, out.first, out.end);
  out.first = out.next = out.grant = out.end;
  out.wanted.clear();
  require(op.pullers_left > 0, "a puller has all once");
  --op.pullers_left;
  finish_if_done(op);
}

void Tiles::finish_if_done(TileOp& op) noexcept {
  if (op.done || op.owners_left > 0 || op.folded < op.tiles) return;
  // Results that lie in no places of their own are sent from the client's memory.
  const bool first_is_enough =
      planted(PlantedBug::kResultFreedEarly) && op.pullers_left < config_.nranks - 1;
  if (op.travels && !op.keeps && op.pullers_left > 0 && !first_is_enough) return;
  op.done = true;
  ++counters_.ops_tiles;
  if (op.spec.wire == WireFormat::kBf16) ++counters_.ops_bf16;
  if (op.spec.wire == WireFormat::kInt8) ++counters_.ops_int8;
  require(done_.push(op.op_seq), "an op that is done has a place");
}

void Tiles::close_old(TimeNs now) noexcept {
  if (std::exchange(results_back_, false)) start_tiles(now);
  bool closed = false;
  while (table_.size() > 0 && table_.at(0).done && table_.at(0).pullers_left == 0) {
    over_ = table_.at(0).op_seq;
    table_.close_oldest();
    closed = true;
  }
  if (closed && !waiting_.empty()) enter_more(now);
}

void Tiles::on_left(std::uint16_t rank, std::uint64_t completed_op_seq, TimeNs now) noexcept {
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    TileOp& op = table_.at(i);
    if (op.op_seq <= completed_op_seq) note_puller_has_all(op, rank);
  }
  TilePeer& peer = peers_[rank];
  if (peer.all > peer.all_known) {
    require(owing_ > 0, "a rank that leaves was owed a word");
    --owing_;
  }
  peer.all_known = peer.all;
  close_old(now);
}

bool Tiles::waits_for(std::uint16_t rank) const noexcept {
  if (config_.folds_only() && !has_members(rank)) return false;
  if (peers_[rank].all > peers_[rank].all_known) return true;
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TileOp& op = table_.at(i);
    const TileOut& out = table_.results_out(op, rank);
    if (!table_.parts_in(op, rank).complete() || !table_.results_in(op, rank).complete() ||
        (out.end != 0 && !out.has_all)) {
      return true;
    }
  }
  return false;
}

void Tiles::on_silent(std::uint16_t rank, TimeNs now) noexcept {
  bool gives = false;
  bool lacks = false;
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TileOp& op = table_.at(i);
    const TileOut& out = table_.results_out(op, rank);
    gives |= !table_.parts_in(op, rank).complete() || !table_.results_in(op, rank).complete();
    lacks |= out.end != 0 && !out.has_all;
  }
  // Who lacks something has not left; a rank that leaves gives it up. Who only owes the word that
  // it heard "all" may have left when it had heard that: it is gone, or its neighbors miss it.
  if (gives || (lacks && !leaving_)) return links_.found_silent(rank);
  on_left(rank, entered_, now);
}

std::optional<Tiles::Missing> Tiles::missing(std::uint64_t op_seq) const noexcept {
  const TileOp* op = table_.find(op_seq);
  if (op == nullptr) return {};
  std::optional<Missing> found;
  std::uint32_t most = 0;
  for (std::uint32_t ahead = 1; ahead <= others(); ++ahead) {
    const std::uint16_t rank = other(ahead);
    const TileIn& parts = table_.parts_in(*op, rank);
    const TileIn& results = table_.results_in(*op, rank);
    const std::uint32_t chunks = parts.end + results.end;
    const std::uint32_t here = parts.first + results.first;
    if (parts.complete() && results.complete()) continue;
    const TileProgress progress = {op->tiles, op->folded, chunks, here};
    if (parts.late) return Missing{rank, false, progress};
    if (chunks - here <= most) continue;
    most = chunks - here;
    found = Missing{rank, true, progress};
  }
  return found;
}

void Tiles::drop_all() noexcept {
  table_.clear();
  waiting_.clear();
  pulls_.drop_all();
  words_.clear();
  sending_.clear();
  watched_.clear();
}

}  // namespace gradwire::collective
