// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The oracle of progress. An op that every rank has posted needs no client any more: while packets
/// get through, something of it has to move, and it has to end, within bounds of virtual time.
/// Pings, acknowledgements and repeated packets are no movement: a ring that waits for itself sends
/// them for ever. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/seeds/job.h"
#include "sim/world/world.h"

namespace gradwire::sim {

class Progress {
 public:
  /// Between looks, unless limit_still() was called.
  static constexpr TimeNs kLookNs = 50'000'000;

  Progress(const World& world, const Job& job) : world_(world), job_(job) {}

  /// For how long nothing may move, else as long as losses of 30 % can make it; then no link of the
  /// ring that has chunks in flight may stand still for longer either, whatever moves elsewhere.
  void limit_still(TimeNs still_ns) {
    still_limit_ns_ = still_ns;
    look_ns_ = kSharpLookNs;
  }

  /// Until `time` packets may not get through, or a host may stand still: nothing is due.
  void disturbed_until(TimeNs time);
  /// Whether all are at work, and packets get through.
  [[nodiscard]] bool may_expect() const;
  /// Between looks, whose times are what the bounds are measured with.
  [[nodiscard]] TimeNs look_ns() const { return look_ns_; }
  /// Every look_ns(). @return empty, or what does not move or does not end: rank, op, for how long.
  [[nodiscard]] std::string look();

  /// The longest that nothing moved though an op was due (if limit_still() was called, of any link
  /// that has chunks in flight), and the longest that a due op took.
  [[nodiscard]] TimeNs longest_still_ns() const { return longest_still_ns_; }
  [[nodiscard]] TimeNs longest_op_ns() const { return longest_op_ns_; }

 private:
  /// Chunks that were taken for the first time, ops that ended: at all ranks, ever.
  [[nodiscard]] std::uint64_t moved() const;
  /// @param posted  by all ranks
  [[nodiscard]] std::string look_at_links(std::uint64_t posted);
  [[nodiscard]] std::string describe_still(std::uint64_t op_seq, TimeNs still, TimeNs due) const;

  const World& world_;
  const Job& job_;
  /// Losses of 30 % and probes 200 ms apart: doc/results/simulator.md has the longest that was
  /// seen.
  static constexpr TimeNs kStillLimitNs = 5'000'000'000;
  static constexpr TimeNs kSharpLookNs = 10'000'000;

  /// A lane's link from one rank to the next.
  struct LinkMark {
    std::uint64_t arrived = 0;  ///< chunks, ever
    TimeNs since = 0;
  };

  TimeNs disturbed_until_ = 0;
  TimeNs still_limit_ns_ = kStillLimitNs;
  TimeNs look_ns_ = kLookNs;
  std::vector<LinkMark> links_;  ///< [nranks][lanes]
  std::uint64_t op_seq_ = 0;     ///< the oldest that a rank is not through with
  std::uint64_t moved_ = 0;
  TimeNs due_since_ = 0;    ///< every rank has posted op_seq_; 0: one has not
  TimeNs moved_since_ = 0;  ///< the last movement seen
  TimeNs longest_still_ns_ = 0;
  TimeNs longest_op_ns_ = 0;
};

}  // namespace gradwire::sim
