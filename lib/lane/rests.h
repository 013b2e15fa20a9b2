// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which groups of a lane rest. A round does not call groups to which nothing happens, so idle
/// groups cost nothing. Anything that can give a group work wakes it: a packet, an op, a request,
/// an abort, its shard's deadline. If such a cause were forgotten, the group would be late by at
/// most kRestNs, because it is called then in any case. That also keeps silence and stalls exact,
/// since a shard counts at most 10 ms between two of its rounds. A backend that has work and a
/// port's rate keep a group awake, because its deadline is near.
///
/// One lane owns it; time is a parameter; nothing allocates after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "lane/group_slots.h"

namespace gradwire::lane {

class Rests {
 public:
  /// @param slots  outlive it.
  Rests(GroupSlots& slots, std::uint16_t most);

  /// Indexes of the groups whose shards a round calls.
  [[nodiscard]] std::span<const std::uint16_t> awake() const noexcept { return awake_; }
  /// A new group, which is awake.
  void add(const GroupSlot& slot) noexcept { awake_.push_back(slots_.index_of(slot)); }
  void remove(const GroupSlot& slot) noexcept;

  /// Ends the group's rest, so that rounds call its shard again.
  void wake(GroupSlot& slot) noexcept;
  /// Wakes those whose time has come.
  void wake_due(TimeNs now) noexcept;
  /// Whether nothing has happened to the group for long enough to rest.
  [[nodiscard]] static bool is_quiet(const GroupSlot& slot) noexcept {
    return slot.closed || slot.quiet_rounds >= kQuietRounds;
  }
  /// Lets the quiet group at `place` in awake() rest if it has nothing to do for long enough.
  /// @return whether it rests; then awake() has lost that place.
  bool rest_if_idle(std::size_t place, TimeNs now) noexcept;
  void round_ended(TimeNs now) noexcept { last_round_ = now; }

  // Whether any group that rests has something unfinished:
  [[nodiscard]] bool expects() const noexcept { return expecting_ > 0; }  ///< an op
  [[nodiscard]] bool moves() const noexcept { return moving_ > 0; }       ///< a collective
  [[nodiscard]] bool streams() const noexcept { return streams_ > 0; }    ///< one of many packets
  /// When the first of their shards has something to do.
  [[nodiscard]] TimeNs deadline() const noexcept {
    return std::min(resting_[0].deadline, resting_[1].deadline);
  }

 private:
  struct Resting {
    std::vector<std::uint16_t> groups;
    TimeNs next_wake = kNever;  ///< not later than the earliest wake_at
    TimeNs deadline = kNever;   ///< not later than the earliest deadline, or than next_wake
  };
  /// A group rests after this many quiet rounds if it has nothing to do for kRestNsMin. That is
  /// longer than an acknowledgement is delayed, so a delayed acknowledgement keeps the group awake.
  static constexpr std::uint32_t kQuietRounds = 64;
  static constexpr TimeNs kRestNsMin = 1'000'000;
  static constexpr TimeNs kRestNs = 5'000'000;
  /// How long a group for transfers alone rests that has none under way: nothing is to be counted,
  /// and there may be a thousand. They wake together, so that they are looked for seldom, and
  /// kWakesPerRound in a round.
  static constexpr TimeNs kLongRestNs = 1'000'000'000;
  static constexpr TimeNs kLongRestEnds = 64'000'000;
  static constexpr std::size_t kWakesPerRound = 64;

  void wake_due(Resting& resting, TimeNs now) noexcept;
  /// Until when a group rests at most, if it rests now.
  [[nodiscard]] static TimeNs longest(const GroupSlot& slot, TimeNs now) noexcept;
  void forget_resting(const GroupSlot& slot) noexcept;

  GroupSlots& slots_;
  std::vector<std::uint16_t> awake_;
  std::array<Resting, 2> resting_;  ///< for short, and long
  std::uint32_t expecting_ = 0;     ///< resting groups that have an unfinished op
  std::uint32_t moving_ = 0;        ///< those that have an unfinished collective
  std::uint32_t streams_ = 0;       ///< their unfinished ops of more than a few packets
  TimeNs last_round_ = 0;
};

}  // namespace gradwire::lane
