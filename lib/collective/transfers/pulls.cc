// SPDX-License-Identifier: BSD-3-Clause
#include "collective/transfers/pulls.h"

#include <algorithm>
#include <bit>

#include "base/require.h"

namespace gradwire::collective {
Pulls::Pulls(const ShardConfig& config, PeerLinks& links, PullWindow& window,
             PairTable<InPair>& ins, PairQueues& queues, ShardCounters& counters)
    : links_(links),
      ins_(ins),
      queues_(queues),
      counters_(counters),
      window_(window),
      ready_(config.transfers.pairs_max) {
  turns_.reserve(kTurns);
}

void Pulls::line_up(InPair& in, TimeNs now) noexcept {
  if (!in.in_line) {
    in.in_line = true;
    require(ready_.push(ins_.index_of(in)), "a pair waits for its turn once");
  }
  give_turns(now);
}

void Pulls::give_turns(TimeNs now) noexcept {
  while (turns_.size() < kTurns && !ready_.empty()) {
    const std::uint32_t index = ready_.front();
    ready_.pop();
    InPair& in = ins_[index];
    in.in_line = false;
    // What went ahead may have been all of it.
    if (!in.ready) continue;
    require(!in.admitted, "a pair has one turn at a time");
    in.admitted = true;
    turns_.push_back(index);
  }
  pull_more(now);
}

void Pulls::pull_more(TimeNs now) noexcept {
  bool pulled = false;
  for (const std::uint32_t index : turns_) pulled |= pull_new(ins_[index], now);
  // Somebody else is the first next time, so that a small window goes round.
  if (pulled) std::rotate(turns_.begin(), turns_.begin() + 1, turns_.end());
}

bool Pulls::pull_new(InPair& in, TimeNs now) noexcept {
  if (in.offered != in.sequence) return false;
  const std::uint32_t end = in.first + std::min(in.chunks - in.first, 64u);
  const std::uint64_t most =
      std::min<std::uint64_t>(end - in.next, window_.room(Puller::kTransfers));
  if (most == 0) return false;
  if (in.asked != 0 && most < std::min(kPullChunks, in.chunks - in.next)) return false;
  if (in.asked == 0) in.waits_since = links_.polled();
  std::uint64_t pulled = 0;
  for (; in.next < end && pulled < most; ++in.next) {
    const std::uint64_t bit = std::uint64_t{1} << (in.next - in.first);
    if ((in.have & bit) != 0) continue;
    if (!in.timed) {
      in.timed = true;
      in.timed_chunk = in.next;
      in.timed_at = now;
    }
    in.asked |= bit;
    in.to_pull |= bit;
    ++pulled;
  }
  if (pulled == 0) return false;
  window_.pulled(Puller::kTransfers, now, pulled);
  queues_.watch(in, now + queues_.patience(in.rank, in.timer.tries));
  queues_.queue(in);
  return true;
}

void Pulls::pull_again(InPair& in, std::uint64_t chunks, TimeNs now) noexcept {
  require((chunks & ~in.asked) == 0, "what is pulled again was pulled");
  const auto count = static_cast<std::uint64_t>(std::popcount(chunks));
  in.to_pull |= chunks;
  in.timed = false;  // Nobody knows which pull brings it.
  in.pulled_again_at = now;
  counters_.pieces_pulled_again += count;
  window_.lost(now, count);
  queues_.queue(in);
}

void Pulls::came(InPair& in, std::uint32_t chunk, bool ecn_ce, TimeNs now) noexcept {
  const bool timed = in.timed && chunk == in.timed_chunk;
  const TimeNs delay = timed ? std::max<TimeNs>(now - in.timed_at, 1) : 0;
  if (timed) {
    links_.sample(in.rank, delay);
    in.timed = false;
  }
  const std::uint64_t bit = std::uint64_t{1} << (chunk - in.first);
  require((in.asked & bit) != 0, "a chunk that comes so was pulled");
  in.asked &= ~bit;
  in.to_pull &= ~bit;
  window_.came(Puller::kTransfers, now, ecn_ce, delay);
}

void Pulls::finish(InPair& in) noexcept {
  window_.forget(Puller::kTransfers, static_cast<std::uint64_t>(std::popcount(in.asked)));
  in.asked = in.to_pull = 0;
  in.timed = false;
  if (!in.admitted) return;
  in.admitted = false;
  std::erase(turns_, ins_.index_of(in));
}

void Pulls::drop_all() noexcept {
  ready_.clear();
  turns_.clear();
}

}  // namespace gradwire::collective
