// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a seed stands for: how many ranks, what network, which ops, what goes wrong and when. A
/// scenario is made from seed and profile alone. Any thread; the vectors allocate.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/reference/reference.h"
#include "sim/seeds/odd_calls.h"
#include "sim/world/world.h"

namespace gradwire::sim {

enum class FaultKind : std::uint8_t {
  kPause,         ///< host `a` stands still
  kCrash,         ///< host `a` is gone; `duration_ns` until a new daemon starts
  kCutEdge,       ///< nothing goes from `a` to `b`
  kCutHost,       ///< nothing goes to or from `a`
  kPartition,     ///< nothing goes between hosts [a, b) and the others
  kClog,          ///< what goes from `a` to `b` arrives at the end, all at once
  kDrought,       ///< host `a` can have few more mbufs
  kClientDies,    ///< a client of rank `a` is killed
  kClientAborts,  ///< a client of rank `a` aborts
  kCutRail,       ///< nothing goes from `a` to `b` by `rail`
  kLossyRail,     ///< most of it is lost
  kSlowRail,      ///< `amount` microseconds more
  kShortRail      ///< full packets are lost
};
[[nodiscard]] const char* name_of(FaultKind kind) noexcept;

struct Fault {
  FaultKind kind = FaultKind::kPause;
  std::uint16_t a = 0;
  std::uint16_t b = 0;
  TimeNs at = 0;  ///< from the start
  TimeNs duration_ns = 0;
  std::uint8_t rail = 0;
  std::uint8_t spine = 0;    ///< of the rail
  std::uint32_t amount = 0;  ///< of a drought: mbufs left
};

/// One op of every rank.
struct PlannedOp {
  OpPlan plan;
  std::vector<TimeNs> late_ns;  ///< [nranks]: after the rank's op before was posted
};

/// One transfer, of both its ends.
struct PlannedTransfer {
  wire::ProcessPair pair;
  wire::TransferTerms terms;
  std::uint64_t seed = 1;
  bool up_to = false;       ///< the receive takes any number of bytes up to what it has room for
  std::uint64_t spare = 0;  ///< of its room, what is not sent
};

struct TransferPlans {
  /// In an order in which ranks that wait for each one can post their ends.
  std::vector<PlannedTransfer> transfers;
  /// [nranks] ends that the rank has under way at most, 2 at least, since both ends of a transfer
  /// may be its own. If these are all, it posts them in an order of its own.
  std::vector<std::uint32_t> ahead;
  double late = 0;  ///< chance that a post is late, by up to late_ns
  TimeNs late_ns = 0;
  std::uint64_t seed = 1;
};

struct Scenario {
  std::uint64_t seed = 1;
  std::string profile;
  std::uint16_t nranks = 2;
  WorldOptions world;
  std::vector<HostProfile> hosts;  ///< [nranks]
  GroupOptions group;
  std::vector<TimeNs> start_late_ns;  ///< [nranks]
  std::vector<PlannedOp> ops;
  std::vector<std::uint32_t> ops_ahead;  ///< [nranks]: unfinished ops that its client has at most
  TransferPlans transfers;
  std::vector<Fault> faults;
  OddCalls odd;
  /// Another user's group on the same hosts: its group, ops, transfers and times are used. Nothing
  /// may end it. nullptr: there is none.
  std::shared_ptr<const Scenario> neighbor;
  /// Two things that no time can say: when the first rank is through with an op, cut one that is
  /// not off; and where this is, the next epoch is of the survivors alone.
  bool cut_after_first_done = false;
  bool shrink = false;
  /// Whether something may end the epoch. If not, every op has to succeed.
  bool may_abort = false;

  /// The profile whose network, hosts and faults the seed has.
  [[nodiscard]] std::string_view kind() const noexcept;
  /// A fault shorter than this aborts nothing; see scenario.cc.
  [[nodiscard]] TimeNs harmless_ns() const noexcept { return group.shard.timeouts.silence_ns / 3; }
  /// Of paths of equal cost a bad one is left within two path limits, each a quarter of the silence
  /// limit. A look comes late.
  [[nodiscard]] TimeNs still_limit_ns() const noexcept {
    constexpr TimeNs kLook = 10'000'000;
    return group.shard.timeouts.silence_ns / 2 + kLook;
  }
};

/// Profiles, each with what it is about.
struct Profile {
  const char* name;
  const char* about;
};
[[nodiscard]] std::span<const Profile> profiles() noexcept;

/// @param ranks  0 = by the seed, 2 to 16
[[nodiscard]] Result<Scenario> make_scenario(std::uint64_t seed, const std::string& profile,
                                             std::uint16_t ranks);
/// Some lines for people.
[[nodiscard]] std::string describe(const Scenario& scenario);

}  // namespace gradwire::sim
