// SPDX-License-Identifier: BSD-3-Clause
// What is to be said, and when again.
#include <algorithm>

#include "base/planted_bug.h"
#include "collective/tiles/tiles.h"

namespace gradwire::collective {
void Tiles::queue(std::uint16_t rank) noexcept {
  TilePeer& peer = peers_[rank];
  if (peer.queued) return;
  peer.queued = true;
  require(words_.push(rank), "a rank is queued for its words once");
}

void Tiles::has_news(std::uint16_t rank, TimeNs now) noexcept {
  moved_ = true;
  TilePeer& peer = peers_[rank];
  peer.tries = 0;
  peer.due = now + patience(rank);
  if (peer.watched) watched_.may_be_due(peer.due);
}

void Tiles::watch(std::uint16_t rank, TimeNs now) noexcept {
  TilePeer& peer = peers_[rank];
  if (peer.watched) return;
  peer.watched = true;
  peer.tries = 0;
  peer.due = now + patience(rank);
  watched_.add(rank, peer.due);
}

/// For how long nothing new is heard of a rank until what may be lost is repeated: at first for
/// little, since an op's last packets have none behind them by which their loss would show.
TimeNs Tiles::patience(std::uint16_t rank) const noexcept {
  const ShardTimeouts& timeouts = config_.timeouts;
  const TimeNs most = std::max(timeouts.ping_interval_ns,
                               std::min(config_.sender.max_pto_ns, timeouts.silence_ns / 10));
  const TimeNs timeout = links_.repeated_after(rank, timeouts_of(rank), most);
  const std::uint32_t tries = peers_[rank].tries;
  if (tries >= kSoonTries) return timeout;
  const TimeNs soon = links_.answered_within(rank) + kSoonNs + config_.all_ranks() * kSoonEachNs;
  return std::min(timeout, soon << tries);
}

void Tiles::look_at_watched(TimeNs now) noexcept {
  using Seen = Sweep<std::uint16_t>::Seen;
  watched_.run(now, [&](std::uint16_t rank) -> Seen {
    TilePeer& peer = peers_[rank];
    const bool due = now >= peer.due;
    if (!repeat(rank, due, now)) {
      peer.watched = false;
      return {Seen::Next::kGoes};
    }
    if (due) {
      links_.end(rank).repeats(timeouts_of(rank), config_.timeouts, now);
      ++peer.tries;
      peer.due = now + patience(rank);
    }
    return {Seen::Next::kStays, peer.due};
  });
}

bool Tiles::repeat(std::uint16_t rank, bool due, TimeNs now) noexcept {
  TilePeer& peer = peers_[rank];
  const bool soon = peer.tries < kSoonTries;
  bool parts = false;
  bool results = false;
  bool told = false;
  bool called = false;
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    TileOp& op = table_.at(i);
    const TileOut& out = table_.results_out(op, rank);
    const TileIn& in = table_.parts_in(op, rank);
    if (in.on_way != 0 && !parts) {
      parts = true;
      if (due) send_again(op, rank, TileWay::kParts, now);
    }
    if (table_.results_in(op, rank).on_way != 0 && !results) {
      results = true;
      if (due) send_again(op, rank, TileWay::kResults, now);
    }
    const std::uint32_t folded = op.told * op.cut.chunks_of_tile();
    if (out.end != 0 && !out.has_all && out.first < folded && !in.late && !told) {
      told = true;
      // The rank may be late, and many may be: all together are asked so often.
      const bool waits_for_it = op.told == op.tiles || (op.keeps && owner_.has_no_place());
      if (due && (!soon || waits_for_it) && !planted(PlantedBug::kTileDoneToldOnce) &&
          links_.may_ask(now)) {
        links_.count_ask();
        want_part_word(op, rank, true);
      }
    }
    const bool offers = table_.parts_out(op, rank).offer == TileOffer::kSaid;
    if ((offers || table_.parts_out(op, rank).call_owed) && !called) {
      called = true;
      // Nothing else makes it enter where no client posts, so these are not held back.
      if (due && (offers || links_.may_ask(now))) {
        links_.count_ask();
        want_call(op, rank, true);
      }
    }
  }
  const bool owes = peer.all > peer.all_known;
  // Mostly the next op's words say it.
  if (owes && due && !soon) {
    if (links_.is_silent(rank)) {
      on_silent(rank, now);
    } else if (links_.may_ask(now)) {
      links_.count_ask();
      want_all(rank, true);
    }
  }
  return parts || results || told || called || owes;
}

void Tiles::send_again(TileOp& op, std::uint16_t rank, TileWay way, TimeNs now) noexcept {
  const std::uint32_t tries = peers_[rank].tries;
  const bool parts = way == TileWay::kParts;
  TileIn& in = table_.in(op, rank, way);
  const TimeNs for_ns = links_.polled() - in.waits_since;
  // Before the whole limit is over: who finds the group stuck then cannot say why.
  if (tries >= kUnansweredMin && for_ns >= config_.timeouts.stuck_ns / 4 * 3) {
    lacking_ = op.op_seq;
    links_.found_in_vain(rank, for_ns, InVain::kTile);
    return;
  }
  pulls_.pull_again(in, tries % kTriesForAll == kSoonTries, now);
  parts ? want_part_word(op, rank, true) : want_result_word(op, rank, true);
}

void Tiles::ask(std::uint16_t rank, TimeNs now) noexcept {
  links_.end(rank).repeats(links_.unanswered(rank), config_.timeouts, now);
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TileOp& op = table_.at(i);
    const TileOut& out = table_.results_out(op, rank);
    if (!table_.parts_in(op, rank).complete()) return want_part_word(op, rank, true);
    if (!table_.results_in(op, rank).complete()) return want_result_word(op, rank, true);
    if (out.end != 0 && !out.has_all) return want_part_word(op, rank, true);
  }
  if (peers_[rank].all > peers_[rank].all_known) want_all(rank, true);
}

void Tiles::want_part_word(const TileOp& op, std::uint16_t source, bool asks) noexcept {
  TileIn& in = table_.parts_in(op, source);
  in.word_wanted = true;
  in.asks |= asks;
  queue(source);
}

void Tiles::want_result_word(const TileOp& op, std::uint16_t owner, bool asks) noexcept {
  TileIn& in = table_.results_in(op, owner);
  in.word_wanted = true;
  in.asks |= asks;
  queue(owner);
}

void Tiles::want_call(const TileOp& op, std::uint16_t owner, bool asks) noexcept {
  TileOut& out = table_.parts_out(op, owner);
  out.call_wanted = true;
  out.call_asks |= asks;
  queue(owner);
}

void Tiles::want_all(std::uint16_t owner, bool asks) noexcept {
  peers_[owner].all_wanted = true;
  peers_[owner].all_asks |= asks;
  queue(owner);
}

void Tiles::pull_more(TimeNs now) noexcept {
  pulls_.pull_more(now, [&](const TileOp& op, std::uint16_t rank, TileWay way) {
    links_.end(rank).may_go_home(now);
    way == TileWay::kParts ? want_part_word(op, rank, false) : want_result_word(op, rank, false);
    watch(rank, now);
  });
}

}  // namespace gradwire::collective
