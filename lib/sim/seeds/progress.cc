// SPDX-License-Identifier: BSD-3-Clause
#include "sim/seeds/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/units.h"

namespace gradwire::sim {
namespace {

constexpr TimeNs kOpLimit = 30'000 * kMs;

}  // namespace

void Progress::disturbed_until(TimeNs time) { disturbed_until_ = std::max(disturbed_until_, time); }

bool Progress::may_expect() const {
  if (world_.now() <= disturbed_until_) return false;
  // If a rank failed or died, the others wait for an error, which has a limit of its own.
  return std::all_of(job_.clients().begin(), job_.clients().end(), [](const Job::Client& client) {
    return client.formed && !client.gone && !client.failed && !client.crashed;
  });
}

std::uint64_t Progress::moved() const {
  std::uint64_t sum = 0;
  for (std::uint16_t rank = 0; rank < job_.clients().size(); ++rank) {
    for (const auto& shard : world_.rank(job_.group(), rank).shards) {
      const collective::ShardCounters& counters = shard->counters();
      sum += counters.data_packets_received + counters.contributions_received +
             counters.tile_pieces_received + counters.ops_done;
    }
  }
  return sum;
}

std::string Progress::look_at_links(std::uint64_t posted) {
  const TimeNs now = world_.now();
  const auto nranks = static_cast<std::uint16_t>(job_.clients().size());
  const bool expects = may_expect();
  std::size_t at = 0;
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    const auto next = static_cast<std::uint16_t>((rank + 1) % nranks);
    const auto& from = world_.rank(job_.group(), rank).shards;
    const auto& to = world_.rank(job_.group(), next).shards;
    for (std::size_t lane = 0; lane < std::min(from.size(), to.size()); ++lane, ++at) {
      if (at == links_.size()) links_.emplace_back();
      const std::uint64_t arrived = to[lane]->counters().data_packets_received;
      if (!expects || arrived != links_[at].arrived || !from[lane]->has_in_flight(posted)) {
        links_[at] = {arrived, now};
      }
      const TimeNs still = now - links_[at].since;
      longest_still_ns_ = std::max(longest_still_ns_, still);
      if (still < still_limit_ns_) continue;
      return fmt::format(
          "no progress: rank {} has chunks in flight to rank {} on lane {}, of ops that every rank "
          "has posted, and packets get through, but none has arrived for {} ms",
          rank, next, lane, still / kMs);
    }
  }
  return {};
}

std::string Progress::look() {
  const TimeNs now = world_.now();
  std::uint64_t first_unfinished = job_.ops() + 1;
  std::uint64_t posted = job_.ops();
  for (const Job::Client& client : job_.clients()) {
    first_unfinished = std::min(first_unfinished, client.first_unfinished);
    posted = std::min(posted, client.posted);
  }
  if (still_limit_ns_ != kStillLimitNs) {
    if (std::string still = look_at_links(posted); !still.empty()) return still;
  }
  const bool due = first_unfinished <= posted && may_expect();
  const std::uint64_t sum = moved();
  if (!due || first_unfinished != op_seq_ || due_since_ == 0) {
    op_seq_ = first_unfinished;
    due_since_ = due ? now : 0;
    moved_since_ = now;
    moved_ = sum;
    return {};
  }
  if (sum != moved_) {
    moved_ = sum;
    moved_since_ = now;
  }
  const TimeNs still = now - moved_since_;
  const TimeNs took = now - due_since_;
  longest_still_ns_ = std::max(longest_still_ns_, still);
  longest_op_ns_ = std::max(longest_op_ns_, took);
  if (still < still_limit_ns_ && took < kOpLimit) return {};
  return describe_still(op_seq_, still, took);
}

std::string Progress::describe_still(std::uint64_t op_seq, TimeNs still, TimeNs due) const {
  std::string who;
  std::string all;
  for (std::uint16_t rank = 0; rank < job_.clients().size(); ++rank) {
    const Job::Client& client = job_.clients()[rank];
    if (client.first_unfinished <= op_seq)
      who += fmt::format("{}{}", who.empty() ? "" : ", ", rank);
    all += fmt::format(" {}: {} of {}", rank, client.done, client.posted);
  }
  return fmt::format(
      "no progress: op {} has not ended at rank {}, though every rank has posted it for {} ms and "
      "packets get through; nothing moved for {} ms. Done of posted by rank:{}",
      op_seq, who, due / kMs, still / kMs, all);
}

}  // namespace gradwire::sim
