// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/user_steps.h"

namespace gradwire::ipc {

bool UserSteps::take(uid_t uid, std::uint64_t steps, TimeNs now) {
  auto found = users_.find(uid);
  if (found == users_.end()) {
    // A user with a full reserve is like one that never came.
    if (users_.size() >= kUsers) {
      std::erase_if(users_, [now](const auto& entry) {
        return !entry.second.waiting && entry.second.meter.has(kSaved, now);
      });
    }
    found = users_.emplace(uid, User{}).first;
  }
  User& user = found->second;
  user.steps += steps;
  user.meter.take_with_debt(static_cast<std::int64_t>(steps), kDebt, now);
  if (user.waiting || user.meter.has(0, now)) return false;
  user.waiting = true;
  ++user.waits;
  return true;
}

bool UserSteps::must_wait(uid_t uid, TimeNs now) {
  const auto found = users_.find(uid);
  if (found == users_.end()) return false;
  User& user = found->second;
  if (user.waiting && user.meter.has(kAgain, now)) user.waiting = false;
  return user.waiting;
}

TimeNs UserSteps::goes_on_at(uid_t uid) const {
  const auto found = users_.find(uid);
  if (found == users_.end() || !found->second.waiting) return kNever;
  return found->second.meter.when(kAgain);
}

}  // namespace gradwire::ipc
