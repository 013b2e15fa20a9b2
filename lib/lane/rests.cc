// SPDX-License-Identifier: BSD-3-Clause
#include "lane/rests.h"

#include <algorithm>

#include "base/require.h"

namespace gradwire::lane {

Rests::Rests(GroupSlots& slots, std::uint16_t most) : slots_(slots) {
  awake_.reserve(most);
  for (Resting& resting : resting_) resting.groups.reserve(most);
}

void Rests::wake(GroupSlot& slot) noexcept {
  slot.quiet_rounds = 0;
  slot.shown = false;
  if (slot.awake) return;
  slot.awake = true;
  if (!slot.closed) slot.shard->rested_until(last_round_);
  forget_resting(slot);
  awake_.push_back(slots_.index_of(slot));
}

void Rests::wake_due(TimeNs now) noexcept {
  for (Resting& resting : resting_) {
    if (now >= resting.next_wake) wake_due(resting, now);
  }
}

void Rests::wake_due(Resting& resting, TimeNs now) noexcept {
  resting.next_wake = resting.deadline = kNever;
  std::size_t woken = 0;
  // Backwards, because the last one takes the place of one that is woken.
  for (std::size_t i = resting.groups.size(); i-- > 0;) {
    GroupSlot& slot = slots_[resting.groups[i]];
    // A group that counts its rounds does not wait, nor one that has something to do.
    const bool may_wait = slot.rests_long && slot.deadline > now;
    if (slot.wake_at <= now && !(may_wait && woken == kWakesPerRound)) {
      wake(slot);
      // If it has nothing to do, it rests again after this round.
      slot.quiet_rounds = kQuietRounds - 1;
      if (may_wait) ++woken;
    } else {
      resting.next_wake = std::min(resting.next_wake, slot.wake_at);
      resting.deadline = std::min(resting.deadline, slot.deadline);
    }
  }
}

bool Rests::rest_if_idle(std::size_t place, TimeNs now) noexcept {
  const std::uint16_t index = awake_[place];
  GroupSlot& slot = slots_[index];
  require(slot.awake && slot.shard != nullptr, "a group that may rest is awake");
  slot.quiet_rounds = 0;
  if (slot.posted_seq != slot.ready_seq) return false;
  const TimeNs deadline = slot.closed ? kNever : slot.shard->deadline(now);
  if (deadline < now + kRestNsMin) return false;
  slot.awake = false;
  slot.deadline = deadline;
  slot.moves = slot.done < slot.ready_seq;
  slot.expects = slot.moves || (!slot.closed && slot.shard->expects_packets());
  slot.rests_long = !slot.closed && !slot.expects && slot.shard->config().transfers.alone;
  slot.wake_at = slot.closed ? kNever : std::min(deadline, longest(slot, now));
  if (slot.expects) ++expecting_;
  if (slot.moves) ++moving_;
  streams_ += slot.streams;
  Resting& resting = resting_[slot.rests_long];
  resting.next_wake = std::min(resting.next_wake, slot.wake_at);
  resting.deadline = std::min(resting.deadline, deadline);
  slot.resting_place = static_cast<std::uint16_t>(resting.groups.size());
  resting.groups.push_back(index);
  awake_.erase(awake_.begin() + static_cast<std::ptrdiff_t>(place));
  return true;
}

TimeNs Rests::longest(const GroupSlot& slot, TimeNs now) noexcept {
  if (!slot.rests_long) return now + kRestNs;
  return (now + kLongRestNs) / kLongRestEnds * kLongRestEnds;
}

void Rests::remove(const GroupSlot& slot) noexcept {
  if (slot.awake) {
    const auto place = std::find(awake_.begin(), awake_.end(), slots_.index_of(slot));
    require(place != awake_.end(), "a group that is awake is in the list of those");
    awake_.erase(place);
  } else {
    forget_resting(slot);
  }
}

void Rests::forget_resting(const GroupSlot& slot) noexcept {
  std::vector<std::uint16_t>& groups = resting_[slot.rests_long].groups;
  require(slot.resting_place < groups.size() && groups[slot.resting_place] == slots_.index_of(slot),
          "a group that rests knows its place among those that do");
  slots_[groups.back()].resting_place = slot.resting_place;
  groups[slot.resting_place] = groups.back();
  groups.pop_back();
  if (slot.expects) --expecting_;
  if (slot.moves) --moving_;
  require(streams_ >= slot.streams, "ops of groups that rest were counted when they began to");
  streams_ -= slot.streams;
}

}  // namespace gradwire::lane
