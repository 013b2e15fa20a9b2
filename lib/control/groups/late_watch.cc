// SPDX-License-Identifier: BSD-3-Clause
#include "control/groups/late_watch.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "control/shard_status.h"

namespace gradwire::control {

namespace {

/// The rank that the oldest unfinished op waits for, if that rank is late.
std::optional<std::uint16_t> late_rank(const Group& group,
                                       const command::PublishedStatus& published, TimeNs notable,
                                       TimeNs now) {
  const command::MembersWait& members = published.members;
  if (members.op_seq != 0 && !members.computes && now - members.since >= notable) {
    return group.rank;
  }
  // An op has its first chunks on lane 0, and whoever has posted it has on all lanes.
  const OpWait wait = op_wait(group, 0, published.status, now);
  if (wait.op_seq == 0 || !wait.is_late || now - wait.since < notable) return std::nullopt;
  return wait.rank;
}

/// Whether an op is unfinished: of most groups none is, and of those for transfers alone never.
bool may_wait(const command::PublishedStatus& published) {
  return published.members.op_seq != 0 ||
         published.status.posted_op_seq > published.status.done_op_seq;
}

}  // namespace

void LateWatch::run(TimeNs now) {
  if (now < next_look_) return;
  next_look_ = now + kSpacingNs;
  const TimeNs passed = std::min(now - std::exchange(looked_at_, now), kMostNs);
  if (groups_.size() == 0) return;
  const auto all = reports_.published_busy(0);
  work_.add(all.size() / kGroupsPerStep + 1);
  std::vector<const command::PublishedStatus*> waiting;
  for (const command::PublishedStatus& one : all) {
    if (may_wait(one)) waiting.push_back(&one);
  }
  const std::size_t looks = std::min(waiting.size(), kGroupsAtOnce);
  work_.add(looks);
  for (std::size_t i = 0; i < looks; ++i) {
    const command::PublishedStatus& one = *waiting[(turn_ + i) % waiting.size()];
    // If not all have their turn, each that has stands for some others' time, too.
    const auto waited = passed * static_cast<TimeNs>(waiting.size()) / static_cast<TimeNs>(looks);
    if (Group* const group = groups_.by_handle(one.group_handle)) look_at(*group, one, waited, now);
  }
  turn_ += looks;
}

void LateWatch::look_at(Group& group, const command::PublishedStatus& published, TimeNs waited,
                        TimeNs now) {
  if (group.state != GroupState::kFormed || group.reason.is_set()) return;
  if (const auto late = late_rank(group, published, kNotableNs, now)) {
    group.late_ranks.add(*late, waited, now);
  }
}

}  // namespace gradwire::control
