// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the ranks of the ring say of ops beside their data: who has posted which, and whether the
/// next rank calls what this one does. An op that waits for such a word ends here when it comes;
/// calls that differ end the group. One lane owns it; it allocates at construction only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collective/links/link.h"
#include "collective/membership/group.h"
#include "collective/membership/membership.h"
#include "collective/membership/stall_watch.h"
#include "collective/ops/op_ends.h"
#include "collective/ops/op_table.h"
#include "collective/ring/call_watch.h"
#include "collective/ring/posted_words.h"
#include "collective/shapes/place.h"
#include "collective/shard_config.h"
#include "collective/shard_services.h"
#include "wire/packet.h"

namespace gradwire::collective {

class RingWords {
 public:
  /// All of them outlive it.
  RingWords(const ShardConfig& config, const Group& group, const Links& links, OpTable& ops,
            OpEnds& op_ends, StallWatch& stall, Membership& membership,
            ShardServices& services) noexcept
      : config_(config),
        group_(group),
        links_(links),
        ops_(ops),
        op_ends_(op_ends),
        stall_(stall),
        membership_(membership),
        services_(services),
        posted_(config.rank, config.nranks),
        calls_(ops),
        compares_(config.nranks > 1) {}

  /// The last op of the table was posted here. It may be gone afterwards, and the group too.
  void on_posted(const OpRules& rules, TimeNs now) noexcept;
  /// An acknowledgement of the next rank came.
  /// @return whether it is known to call the same as before: else nothing may end by what it says.
  [[nodiscard]] bool on_ack(const wire::AckHeader& ack, TimeNs now) noexcept;
  /// A neighbor left: whether it called the same.
  void compare_last(const wire::ByeBody& bye, TimeNs now) noexcept;
  /// The next rank left: it had posted all that it finished.
  void on_left(const wire::ByeBody& bye, TimeNs now) noexcept;

  /// What acknowledgements to the rank before say.
  [[nodiscard]] PostedWords words() const noexcept {
    return posted_.words(ops_.posted(), agreed());
  }
  /// Whether the next rank and all after it are known to have posted the op.
  [[nodiscard]] bool is_posted_onwards(std::uint64_t op_seq) const noexcept {
    return posted_.heard_onwards() >= op_seq;
  }
  /// Whether no unfinished op waits for all ranks.
  [[nodiscard]] bool none_waits_for_all() const noexcept { return last_waiting_ <= ops_.done(); }
  /// Whether the next rank has to say something before an op here can go on or end.
  [[nodiscard]] bool awaits_some() const noexcept;

 private:
  /// What all ranks have posted may have become more.
  void on_words(TimeNs now) noexcept {
    if (admitted_up_to_ < last_waiting_) admit(now);
  }
  void admit(TimeNs now) noexcept;
  /// What the next rank called, and what was called here, may have become known.
  void compare(TimeNs now) noexcept;
  /// Up to which op the next rank is known to call the same; all of them if there is none.
  [[nodiscard]] std::uint64_t agreed() const noexcept {
    return compares_ ? calls_.agreed() : UINT64_MAX;
  }
  [[nodiscard]] Link& next() const noexcept;
  /// The first op that differs cannot be told: it is one of those from calls_.first() to `last`.
  void report_among(const char* what, std::uint16_t rank, std::uint64_t last, TimeNs now) noexcept;

  const ShardConfig& config_;
  const Group& group_;
  const Links& links_;
  OpTable& ops_;
  OpEnds& op_ends_;
  StallWatch& stall_;
  Membership& membership_;
  ShardServices& services_;
  PostedByAll posted_;
  CallWatch calls_;                 ///< of the next rank
  bool compares_;                   ///< there is one
  std::uint64_t last_waiting_ = 0;  ///< the last op posted that waits for all
  std::uint64_t last_one_way_ = 0;
  std::uint64_t last_compared_ = 0;  ///< the last op that has to be agreed on
  std::uint64_t agreed_up_to_ = 0;   ///< ops up to here know that they are
  std::uint64_t admitted_up_to_ = 0;
};

}  // namespace gradwire::collective
