// SPDX-License-Identifier: BSD-3-Clause
// What is posted, and what is copied between processes of this rank.
#include "collective/transfers/transfers.h"

#include <algorithm>
#include <cstring>

#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/bits.h"

namespace gradwire::collective {
namespace {

/// Copied in a round, so that packets get their turn.
constexpr std::uint64_t kCopyBytes = 256u << 10;

}  // namespace

Transfers::Transfers(const ShardConfig& config, PeerLinks& links, PullWindow& window,
                     const PacketBuffers& buffers, ShardCounters& counters)
    : config_(config),
      links_(links),
      buffers_(buffers),
      processes_(config.processes()),
      counters_(counters),
      chunks_(config),
      outs_(config.transfers.pairs_max),
      ins_(config.transfers.pairs_max),
      under_way_(config, outs_, ins_, counters),
      early_(config.payload_bytes),
      queues_(config, links, outs_, ins_),
      pulls_(config, links, window, ins_, queues_, counters),
      pacer_(config.sender.rate_bps, config.sender.burst_bytes),
      here_(config.transfers.pairs_max),
      sized_(config.transfers.pairs_max) {
  links_.add(*this);
}

PostResult Transfers::post(const TransferSpec& spec, TimeNs now) noexcept {
  const std::uint32_t processes = processes_.count();
  if (spec.pair.source >= processes || spec.pair.destination >= processes) {
    return PostResult::kRefused;
  }
  if (spec.terms.bytes > wire::kTransferBytesMax ||
      spec.terms.bytes / config_.payload_bytes >= UINT32_MAX) {
    return PostResult::kTooLarge;
  }
  // Each transfer under way will need a place for its end, beside those not taken yet.
  if (!under_way_.has_room()) return PostResult::kFull;
  const std::uint16_t source = processes_.rank_of(spec.pair.source);
  const std::uint16_t destination = processes_.rank_of(spec.pair.destination);
  const bool sends = spec.end == TransferEnd::kSource;
  if ((sends ? source : destination) != config_.rank) return PostResult::kRefused;
  if (!chunks_.has(spec.pair)) return PostResult::kRefused;
  if (spec.up_to && (sends || !chunks_.is_first_lane(spec.pair))) return PostResult::kRefused;
  return sends ? post_send(spec, destination, now) : post_receive(spec, source, now);
}

PostResult Transfers::post_send(const TransferSpec& spec, std::uint16_t to, TimeNs now) noexcept {
  OutPair* out = outs_.enter(spec.pair, to);
  if (out == nullptr) return PostResult::kTooLarge;
  if (out->active) return PostResult::kFull;
  ++out->sequence;
  out->id = spec.id;
  out->from = spec.from;
  out->terms = spec.terms;
  out->chunks = chunks_.count(spec.pair, spec.terms.bytes);
  out->first = 0;
  out->wanted = 0;
  out->heard = out->offered = false;
  out->posted_there = false;
  begin(*out, now);
  if (out->chunks == 0 && !chunks_.is_first_lane(spec.pair)) {
    under_way_.end(*out);
    return PostResult::kOk;
  }
  out->active = true;
  if (to == config_.rank) {
    pair_up_here(spec.pair);
    return PostResult::kOk;
  }
  if (out->chunks > 0 && out->chunks <= InPair::kAhead) {
    out->wanted = low_bits(out->chunks);
    out->offer_wanted = false;
    queues_.queue_pieces(*out);
  } else {
    out->offer_wanted = out->asks = true;
    queues_.queue(*out);
  }
  out->timer.tries = 0;
  queues_.watch(*out, now + queues_.patience(to, 0));
  return PostResult::kOk;
}

PostResult Transfers::post_receive(const TransferSpec& spec, std::uint16_t from,
                                   TimeNs now) noexcept {
  InPair* in = ins_.enter(spec.pair, from);
  if (in == nullptr) return PostResult::kTooLarge;
  if (in->active) return PostResult::kFull;
  ++in->sequence;
  in->id = spec.id;
  in->to = spec.to;
  in->terms = spec.terms;
  in->up_to = spec.up_to;
  in->chunks = chunks_.count(spec.pair, spec.terms.bytes);
  in->first = in->next = 0;
  in->have = in->asked = in->to_pull = 0;
  in->timed = false;
  begin(*in, now);
  if (in->offered == in->sequence) {
    if (!in->takes(in->offered_terms)) {
      differ(*in, in->offered_terms);
      return PostResult::kOk;
    }
    settle_size(*in, in->offered_terms.bytes);
  }
  if (in->chunks == 0 && !chunks_.is_first_lane(spec.pair)) {
    under_way_.end(*in);
    return PostResult::kOk;
  }
  in->active = true;
  if (from == config_.rank) {
    pair_up_here(spec.pair);
    return PostResult::kOk;
  }
  take_ahead(*in, now);
  if (in->offered == in->sequence || planted(PlantedBug::kWaitingReceiveTakesTurn)) {
    become_ready(*in, now);
  }
  return PostResult::kOk;
}

void Transfers::settle_size(InPair& in, std::uint64_t bytes) noexcept {
  if (!in.up_to) return;
  in.up_to = false;
  const std::uint64_t told = planted(PlantedBug::kRoomToldAsSize) ? in.terms.bytes : bytes;
  in.terms.bytes = bytes;
  in.chunks = chunks_.count(in.pair, bytes);
  require(sized_.push({in.id, told}), "the size of a receive is taken before its end");
}

bool Transfers::pop_sized(Sized& out) noexcept {
  if (sized_.empty()) return false;
  out = sized_.front();
  sized_.pop();
  return true;
}

void Transfers::pair_up_here(const wire::ProcessPair& pair) noexcept {
  const OutPair* out = outs_.find(pair);
  InPair* in = ins_.find(pair);
  if (out == nullptr || in == nullptr || !out->active || !in->active) return;
  // If not, what one of them sends is no chunk of this lane: lane 0 finds that they differ.
  if (out->sequence != in->sequence) return;
  if (!in->takes(out->terms)) {
    differ(*in, out->terms);
    return;
  }
  settle_size(*in, out->terms.bytes);
  require(here_.push(ins_.index_of(*in)), "a pair is copied once at a time");
}

bool Transfers::copy_here() noexcept {
  bool worked = false;
  for (std::uint64_t left = kCopyBytes; !here_.empty() && left > 0;) {
    InPair& in = ins_[here_.front()];
    OutPair* const from = outs_.find(in.pair);
    require(from != nullptr && from->active && in.active,
            "a copy is made while both ends wait for it");
    OutPair& out = *from;
    worked = true;
    for (; in.first < in.chunks && left > 0; ++in.first) {
      const std::uint64_t at = chunks_.offset_of(in.pair, in.first);
      const std::uint32_t bytes = chunks_.bytes_of(in.pair, in.first, in.terms.bytes);
      // A client may change its splits after they were compared, so that they overlap.
      std::memmove(in.to + at, out.from + at, bytes);
      left -= std::min<std::uint64_t>(left, bytes);
    }
    if (in.first < in.chunks) break;
    here_.pop();
    in.active = out.active = false;
    under_way_.end(in);
    under_way_.end(out);
  }
  return worked;
}

TransferWait Transfers::oldest() const noexcept {
  TransferWait wait;
  wait.unfinished = under_way_.count();
  const std::uint32_t oldest = under_way_.oldest();
  if (oldest == PairOrder::kNobody) return wait;
  const auto tell = [&](const auto& pair) {
    wait.rank = pair.rank;
    wait.pair = pair.pair;
    wait.sequence = pair.sequence;
    wait.terms = pair.terms;
    wait.posted_at = pair.order.posted_at;
    wait.moved_at = pair.order.moved_at;
  };
  if (oldest % 2 == 1) {
    const InPair& in = ins_[oldest / 2];
    tell(in);
    wait.up_to = in.up_to;
    wait.end = TransferEnd::kDestination;
    const OutPair* out = in.rank == config_.rank ? outs_.find(in.pair) : nullptr;
    wait.posted_there = out != nullptr ? out->sequence >= in.sequence : in.offered >= in.sequence;
  } else {
    const OutPair& out = outs_[oldest / 2];
    tell(out);
    const InPair* in = out.rank == config_.rank ? ins_.find(out.pair) : nullptr;
    wait.posted_there = in != nullptr ? in->sequence >= out.sequence : out.posted_there;
  }
  if (wait.rank != config_.rank) {
    wait.rank_silent_ns = links_.quiet(wait.rank);
    wait.rank_unanswered = links_.unanswered(wait.rank);
    wait.rank_ip = links_.ends().sends_to(wait.rank);
  }
  return wait;
}

void Transfers::differ(const InPair& in, const wire::TransferTerms& sent) noexcept {
  if (!mismatch_) mismatch_ = Mismatch{in.pair, in.rank, in.sequence, sent, in.terms, in.up_to};
}

void Transfers::drop_all() noexcept {
  queues_.clear();
  pulls_.drop_all();
  here_.clear();
  // Sizes are still told: of transfers that ended in the same round their ends are, too.
}

}  // namespace gradwire::collective
