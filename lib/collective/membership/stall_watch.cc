// SPDX-License-Identifier: BSD-3-Clause
#include "collective/membership/stall_watch.h"

#include <algorithm>

#include "base/require.h"

namespace gradwire::collective {
namespace {

/// How many questions a rank asks in the stuck limit; the first after half of it.
constexpr TimeNs kChecks = 30;
constexpr std::uint32_t kChecksReturned = 5;

}  // namespace

void StallWatch::count(TimeNs round) noexcept {
  require(round >= 0, "polled time goes on");
  if (moved_at_ == moved_seen_) {
    stalled_ns_ += round;
    return;
  }
  moved_seen_ = moved_at_;
  stalled_ns_ = 0;
  returned_ = 0;
  next_check_ns_ = stuck_ns_ / 2;
  next_return_ns_ = 0;
}

bool StallWatch::look(std::uint64_t oldest_unfinished, bool alone) noexcept {
  if (alone) return stalled_ns_ >= stuck_ns_;
  if (stalled_ns_ >= next_check_ns_) {
    next_check_ns_ = stalled_ns_ + stuck_ns_ / kChecks;
    ask({oldest_unfinished, static_cast<std::uint64_t>(stalled_ns_), rank_});
  }
  return false;
}

std::uint64_t StallWatch::shortest(const wire::ProgressCheckBody& check) const noexcept {
  // A rank that is done with the op has posted it too: it counts by how long it has been still.
  return std::min(check.stalled_ns, static_cast<std::uint64_t>(stalled_ns_));
}

void StallWatch::hand_on(const wire::ProgressCheckBody& check, std::uint64_t posted) noexcept {
  if (posted >= check.op_seq) ask({check.op_seq, shortest(check), check.origin_rank});
}

bool StallWatch::on_return(const wire::ProgressCheckBody& check) noexcept {
  // If a port sent nothing for a while, several come back at once: they count as one.
  if (stalled_ns_ < next_return_ns_) return false;
  next_return_ns_ = stalled_ns_ + stuck_ns_ / kChecks / 2;
  ++returned_;
  return returned_ >= kChecksReturned && shortest(check) >= static_cast<std::uint64_t>(stuck_ns_);
}

void StallWatch::ask(const wire::ProgressCheckBody& check) noexcept {
  // If there is no room it is lost, like a packet: the rank that asks will ask again.
  static_cast<void>(questions_.push(check));
}

}  // namespace gradwire::collective
