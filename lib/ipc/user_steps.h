// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How much of the control thread each user takes by the second. A user may take kSaved steps at
/// once, as jobs do that start, and kPerSecond for ever. Whoever took more waits: nothing of that
/// user is received until kAgain steps are there again. The wait has a bound, since what a user's
/// groups take may depend on others, and since the end of a client is not seen before. One thread;
/// time is a parameter.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "base/rate_meter.h"
#include "base/types.h"

namespace gradwire::ipc {

class UserSteps {
 public:
  static constexpr std::int64_t kPerSecond = 100'000;
  static constexpr std::int64_t kSaved = 1'000'000;
  /// What a user can owe: a wait takes (kDebt + kAgain) / kPerSecond, 0.24 s, at most.
  static constexpr std::int64_t kDebt = 20'000;
  /// Less would wake the control thread for every message.
  static constexpr std::int64_t kAgain = 4'096;
  /// Users that are remembered though they took nothing for long.
  static constexpr std::size_t kUsers = 1'024;

  struct User {
    RateMeter meter{1'000'000'000 / kPerSecond, kSaved};
    std::uint64_t steps = 0;  ///< so far
    std::uint64_t waits = 0;  ///< how often the user had to wait
    bool waiting = false;
  };

  /// What was taken may be more than there was.
  /// @return whether the user begins to wait with it.
  bool take(uid_t uid, std::uint64_t steps, TimeNs now);
  /// Whether nothing is to be received of that user now.
  [[nodiscard]] bool must_wait(uid_t uid, TimeNs now);
  /// When a user that waits need not wait any more; kNever: it does not wait.
  [[nodiscard]] TimeNs goes_on_at(uid_t uid) const;

  [[nodiscard]] const std::map<uid_t, User>& users() const noexcept { return users_; }

 private:
  std::map<uid_t, User> users_;
};

}  // namespace gradwire::ipc
