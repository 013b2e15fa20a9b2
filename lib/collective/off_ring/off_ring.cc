// SPDX-License-Identifier: BSD-3-Clause
#include "collective/off_ring/off_ring.h"

#include <algorithm>

#include "base/abort_detail.h"
#include "base/require.h"

namespace gradwire::collective {

using wire::Drop;

OffRing::OffRing(const ShardConfig& config, const Group& group, Neighbors& neighbors,
                 const PeerEnds& ends, const PacketBuffers& buffers, OpTable& ops, FoldQueue& folds,
                 OpEnds& op_ends, StallWatch& stall, ShardServices& services,
                 ShardCounters& counters, bool told)
    : config_(config),
      group_(group),
      neighbors_(neighbors),
      ends_(ends),
      ops_(ops),
      op_ends_(op_ends),
      stall_(stall),
      services_(services),
      counters_(counters),
      links_(config, ends),
      told_order_(config) {
  if (config.direct.op_bytes != 0 && config.nranks > 1) {
    direct_.emplace(config, links_, buffers, ops, folds, told_order_, counters);
  }
  if (told) {
    require(direct_.has_value(), "a rank without members has direct ops");
    told_.emplace(config, group, *direct_, ops, services);
  } else if (config.transfers.pairs_max != 0) {
    window_.emplace(config);
    transfers_.emplace(config, links_, *window_, buffers, counters);
    turns_.add(*transfers_);
  }
  if (config.tiles.used && config.nranks > 1) {
    if (!window_) window_.emplace(config);
    tiles_.emplace(config, links_, *window_, buffers, ops, folds, told_order_, counters);
    turns_.add(*tiles_);
  }
}

void OffRing::on_posted(Op& op, const OpPlan& plan, TimeNs now) noexcept {
  const std::uint64_t op_seq = op.spec.op_seq;
  if (plan.shape == Shape::kTiles) {
    require(tiles_.has_value(), "an op goes by tiles if its group has them");
    tiles_->post(op_seq, now);
    settle_tiles(now);
  }
  if (!direct_) return;
  if (is_pushed(plan.shape) && plan.lane_chunks > 0) start(op, now);
  if (live()) apply_ahead(op_seq, now);
}

Drop OffRing::receive(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept {
  require(takes(packet.common), "packets of a kind that the group does not have are foreign");
  // Whatever came from a rank, it lives: a slow port may have had no room for the other kind.
  const std::uint16_t rank = packet.common.from_rank;
  neighbors_.heard_from(rank);
  links_.came(packet.common);
  if (wire::is_of_tiles(packet.common.type)) {
    const bool tells = told_ && packet.common.type == wire::PacketType::kTileCall;
    if (tells && !packet.tile.not_entered) told_->hear(rank, packet.tile, now);
    if (!live()) return Drop::kNone;
    const Drop drop = tiles_->receive(packet, ecn_ce, now);
    settle_tiles(now);
    return drop;
  }
  if (!wire::is_of_transfer(packet.common.type)) return receive_direct(packet, ecn_ce, now);
  const Drop drop = transfers_->receive(packet, ecn_ce, now);
  judge_transfers(now);
  return drop;
}

void OffRing::on_left(std::uint16_t rank, std::uint64_t completed_op_seq, TimeNs now) noexcept {
  if (direct_) direct_->on_left(rank, completed_op_seq, now);
  if (!tiles_) return;
  tiles_->on_left(rank, completed_op_seq, now);
  settle_tiles(now);
}

void OffRing::probe_at_once(std::uint16_t rank) noexcept { links_.ask_at_once(rank); }

void OffRing::refill() noexcept {
  if (direct_) direct_->folds().refill();
}

bool OffRing::run(TimeNs now, Outbox& out) noexcept {
  bool worked = live() && links_.look(now);
  if (worked) judge_silence(now);
  const auto run_one = [&](LateUser& user) { return run_late(user, now, out); };
  worked |= turns_.run_passed(run_one);
  if (told_) told_->post(now);
  if (direct_ && live()) {
    worked |= run_direct(now, out);
    // A look at who is late is nobody's turn.
    if (direct_->sent_last() > 0) turns_.passed();
  }
  // A rank of which nothing comes for long seems silent, though the ring fills its port.
  return turns_.run_starving(run_one) || worked;
}

bool OffRing::run_last(TimeNs now, Outbox& out) noexcept {
  return turns_.run_all([&](LateUser& user) { return run_late(user, now, out); });
}

bool OffRing::run_direct(TimeNs now, Outbox& out) noexcept {
  const bool worked = direct_->run(now, out);
  judge_silence(now);
  return worked;
}

bool OffRing::run_late(LateUser& user, TimeNs now, Outbox& out) noexcept {
  if (!live()) return false;
  const bool worked = user.run(now, out);
  if (tiles_ && &user == &*tiles_) settle_tiles(now);
  if (live()) judge_silence(now);
  return worked;
}

void OffRing::judge_silence(TimeNs now) noexcept {
  const auto silent = links_.take_silent();
  if (!silent) return;
  if (silent->in_vain == InVain::kNothing && neighbors_.judges_silence_of(silent->rank)) {
    links_.hear(silent->rank);
    return;
  }
  AbortReason reason{.code = AbortCode::kSilence,
                     .culprit_rank = silent->rank,
                     .reporter_rank = config_.rank,
                     .op_seq = ops_.oldest_unfinished(),
                     .duration_ns = static_cast<std::uint64_t>(silent->for_ns)};
  tell_of_silence(reason, *silent);
  services_.abort(reason, now);
}

void OffRing::tell_of_silence(AbortReason& reason, const PeerSilence& silent) const noexcept {
  switch (silent.in_vain) {
    case InVain::kAcknowledgement:
      return reason.set_detail(
          "it answers, but what it lacks was sent again and again and never came there: the MTU of "
          "the path may be below that of the ring's");
    case InVain::kPiece: {
      require(transfers_.has_value(), "pieces are awaited of transfers");
      const Transfers::Lacking& lacking = transfers_->lacking();
      reason.op_seq = 0;
      return format_detail(
          reason,
          "transfer {} of {}: it answers, but chunks that were pulled "
          "again and again never came: the MTU of the path may be below that of the ring's",
          lacking.sequence, wire::text_of(lacking.pair).text);
    }
    case InVain::kTile:
      require(tiles_.has_value(), "tiles are awaited of ops by tiles");
      reason.op_seq = tiles_->lacking();
      return reason.set_detail(
          "it answers, but chunks of the op that were pulled again and again never came: the MTU "
          "of the path may be below that of the ring's");
    case InVain::kNothing:
      break;
  }
  if (neighbors_.rank_has_left(silent.rank)) {
    // Its leave limit was over, or this rank stood still for so long that it was given up.
    reason.code = AbortCode::kPeerLeft;
    reason.set_detail(
        "it left before this rank had got all that it gives to the op, and nothing came from it "
        "since");
  } else if (silent.never_heard) {
    reason.set_detail("nothing ever came from it, though the group has formed");
  }
}

TimeNs OffRing::deadline(TimeNs now) const noexcept {
  if (!live()) return kNever;
  TimeNs earliest = links_.deadline();
  if (direct_) earliest = std::min(earliest, direct_->deadline(now));
  if (transfers_) earliest = std::min(earliest, transfers_->deadline(now));
  if (tiles_) earliest = std::min(earliest, tiles_->deadline(now));
  return earliest;
}

void OffRing::fill(ShardStatus& status) const noexcept {
  if (transfers_ && live()) status.transfer = transfers_->oldest();
  if (tiles_) fill_tiles(status);
  if (!direct_) return;
  status.scratch_bytes = direct_->scratch().touched_bytes();
  if (const auto least = links_.least_heard(*direct_)) {
    status.least_heard_rank = *least;
    status.least_heard_ns = links_.quiet(*least);
    status.least_heard_unanswered = links_.unanswered(*least);
    status.least_heard_ip = ends_.sends_to(*least);
  }
  if (const auto missing = direct_->missing(ops_.done() + 1)) {
    status.is_contribution_missing = true;
    status.missing_rank = missing->rank;
    status.missing_rank_has_posted = missing->posted;
  }
}

void OffRing::leave() noexcept {
  if (direct_) direct_->leave();
  if (tiles_) tiles_->leave();
}

void OffRing::drop_all() noexcept {
  links_.drop_all();
  if (direct_) direct_->drop_all();
  if (transfers_) transfers_->drop_all();
  if (tiles_) tiles_->drop_all();
}

}  // namespace gradwire::collective
