// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Who sends first where a port is full: who is not answered seems silent, so nobody may wait for
/// ever behind the others. Direct ops go before the ring; late users, which are transfers and
/// tiles, after it. Each of them sends a bounded number of packets in a round, but that may be all
/// that the port takes.
///
///   1. If direct ops sent something while a late user waits for room, that user goes before them
///      once. So do all that wait.
///   2. A late user that has waited for some rounds goes before the ring.
///   3. Among late users one is the first. Once it no longer waits for room, the next one is. So of
///      those that wait each is the first in its turn.
///   4. A round in which a user finds no room is not its turn.
///
/// With room for one packet in each round, direct ops and two late users go in turn. One lane owns
/// it; it allocates nothing; it knows no time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/require.h"
#include "base/types.h"

namespace gradwire::collective {

struct Outbox;

/// Who sends after the ring.
class LateUser {
 public:
  /// Sends a bounded number of packets. @return whether it did anything.
  virtual bool run(TimeNs now, Outbox& out) noexcept = 0;
  /// Whether its last run sent nothing, since there was no room.
  [[nodiscard]] virtual bool waits_for_room() const noexcept = 0;
  /// Whether it was so for some runs: others took the room.
  [[nodiscard]] virtual bool starves() const noexcept = 0;

 protected:
  ~LateUser() = default;
};

class PortTurns {
 public:
  /// Transfers, and tiles when there are any.
  static constexpr std::size_t kUsersMax = 2;

  /// It outlives this, and is not moved.
  void add(LateUser& user) noexcept {
    require(count_ < kUsersMax, "there is a place for each user that sends after the ring");
    users_[count_++] = &user;
  }
  /// Direct ops sent something.
  void passed() noexcept { passed_ = (1u << count_) - 1; }

  // run(user): whether it did anything. @return whether one did.
  /// Before direct ops: who waits for room that they took.
  template <class Run>
  bool run_passed(Run&& run) noexcept {
    if (passed_ == 0) return false;
    const bool worked = each(
        [&](std::size_t user) { return is_passed(user) && users_[user]->waits_for_room(); }, run);
    for (std::size_t user = 0; user < count_; ++user) {
      if (!users_[user]->waits_for_room()) passed_ &= ~(1u << user);
    }
    return worked;
  }
  /// Before the ring: who waits for room that it took.
  template <class Run>
  bool run_starving(Run&& run) noexcept {
    return each([&](std::size_t user) { return users_[user]->starves(); }, run);
  }
  /// After the ring: each.
  template <class Run>
  bool run_all(Run&& run) noexcept {
    return each([](std::size_t) { return true; }, run);
  }

 private:
  [[nodiscard]] bool is_passed(std::size_t user) const noexcept {
    return (passed_ >> user & 1) != 0;
  }
  /// From the first on, those for which goes(index) says so.
  template <class Goes, class Run>
  bool each(Goes&& goes, Run&& run) noexcept {
    const std::size_t begin = first_;
    bool worked = false;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t user = begin + i < count_ ? begin + i : begin + i - count_;
      if (!goes(user)) continue;
      worked |= run(*users_[user]);
      if (user == begin && !users_[user]->waits_for_room()) {
        first_ = begin + 1 < count_ ? begin + 1 : 0;
      }
    }
    return worked;
  }

  std::array<LateUser*, kUsersMax> users_{};
  std::size_t count_ = 0;
  std::size_t first_ = 0;
  std::uint32_t passed_ = 0;  ///< bit i: direct ops sent something while users_[i] had not
};

}  // namespace gradwire::collective
