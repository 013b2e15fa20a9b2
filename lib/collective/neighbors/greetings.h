// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How neighbors greet each other: who is sent a hello, what comes of a hello that came, and how it
/// is answered.
///
/// Hello: repeated to the rank that data goes to until it is answered. The first ones go by the
/// first path, and then by all paths in turn; from the path's own source port at first, and then
/// from one after the other. The first way that answers is taken.
///
/// Answer: by the path by which the hello came, from one source port after the other until the rank
/// says that it hears. Each source port is answered once, however many hellos came from it. If the
/// port is behind, the first hello alone is answered, and no second one for a while.
///
/// A hello of another group, epoch, version or table has no effect. As long as the group forms it
/// is kept, so that the error of a group that does not form can say what came.
///
/// Membership says when hellos go. One lane owns it; it allocates at construction only; time is a
/// parameter.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/abort_reason.h"
#include "collective/links/link.h"
#include "collective/membership/group.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class Greetings {
 public:
  using Cause = std::optional<AbortReason>;

  /// All of them outlive it.
  /// @param links  of the neighbors.
  Greetings(const ShardConfig& config, const Group& group, const Links& links, const OpTable& ops);

  /// Whether hellos were exchanged with all.
  [[nodiscard]] bool all_open() const noexcept;
  /// What came from the neighbor and does not fit.
  [[nodiscard]] const Unfit& unfit(LinkIndex link) const noexcept { return met_[link].unfit; }
  void fill(ShardStatus& status) const noexcept;

  // Packets.
  /// Whether a hello is of this group, from the rank and the daemon at the other end.
  [[nodiscard]] bool is_of(LinkIndex link, const wire::HelloBody& hello) const noexcept;
  /// Whether a hello from that source port waits for its answer: another one gets none of its own.
  [[nodiscard]] bool is_to_answer(LinkIndex link, PathIndex path,
                                  std::uint8_t source) const noexcept {
    return (met_[link].hellos[path].unanswered >> source & 1) != 0;
  }
  /// A hello of which is_of() is true.
  /// @param path  by which it came.
  /// @return why the group cannot form.
  [[nodiscard]] Cause on_hello(LinkIndex link, const wire::HelloBody& hello, PathIndex path,
                               TimeNs now) noexcept;
  /// Takes the answer to one of this rank's hellos.
  [[nodiscard]] Cause on_hello_ack(LinkIndex link, const wire::HelloBody& hello,
                                   PathIndex path) noexcept;
  /// Why the group does not form: what came from a neighbor's address and does not fit.
  void on_other_version(const wire::IpAddress& source, std::uint8_t version) noexcept;
  void on_other_group(const wire::IpAddress& source, const GroupKey& key) noexcept;
  void on_unfit_hello(const wire::IpAddress& source, std::uint16_t says_rank) noexcept;
  /// A hello of the group that is not sealed as its packets are: it has another mode there.
  void on_unsealed_hello(const wire::IpAddress& source) noexcept;

  // Changes of the state.
  void on_formed() noexcept;
  void on_aborted() noexcept;

  // Sending.
  /// Whether some rank is sent hellos: until it answers.
  [[nodiscard]] bool greets_anyone() const noexcept;
  /// Sends each of these a hello. @return whether there was room for one.
  bool greet(Outbox& out) noexcept;
  /// Until the next greet(), if there was room: longer and longer if nobody has answered for long,
  /// up to a part of the silence limit. A hello is a full packet, and groups that do not form must
  /// not take the port from others.
  [[nodiscard]] TimeNs spacing() const noexcept;
  /// Whether a hello waits for its answer: it goes in the next round, or later if it finds no room.
  [[nodiscard]] bool owes_answers() const noexcept {
    return std::any_of(met_.begin(), met_.end(), [](const Met& met) {
      return met.paths_to_answer != 0 || met.heard_source != 0;
    });
  }
  void answer(TimeNs now, Outbox& out) noexcept;
  /// @param heard  wire::HelloBody::heard_source
  /// @return whether there was room for it.
  bool send(LinkIndex link, wire::PacketType type, PathChoice::Way way, std::uint8_t heard,
            Outbox& out) noexcept;

 private:
  /// Hellos that came by a path.
  struct Hellos {
    std::uint64_t unanswered = 0;  ///< by wire::HelloBody::source, a bit each
    std::uint8_t first = 0;        ///< of these, the one that came first
    std::uint8_t answers = 0;      ///< from how many source ports they were answered, in turn
    bool heard = false;            ///< the last one says that an answer was
    TimeNs last = 0;
    TimeNs next_answer = 0;  ///< if the port is behind
    /// What the path's own source port has answered, while another one finds no room.
    std::optional<std::uint8_t> own_answered;
  };
  /// What is known of a neighbor by its hellos.
  struct Met {
    std::uint32_t paths_to_answer = 0;  ///< by which hellos are to be answered, a bit each
    std::array<Hellos, kPathsMax> hellos{};
    std::uint8_t heard_source = 0;  ///< not its first, and a hello is to tell it; as HelloBody's
    Unfit unfit;
  };

  [[nodiscard]] LinkIndex count() const noexcept { return static_cast<LinkIndex>(links_.size()); }
  [[nodiscard]] LinkEnd& end(LinkIndex link) const noexcept { return links_[link]->end; }
  [[nodiscard]] bool greets(LinkIndex link) const noexcept;
  [[nodiscard]] Cause table_differs(LinkIndex link, const wire::HelloBody& hello) const noexcept;
  void request_ack(LinkIndex link) noexcept;
  void take_first(LinkIndex link, const wire::HelloBody& answer, PathIndex path) noexcept;
  bool answer_path(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept;
  bool answer_first(LinkIndex link, PathIndex path, TimeNs now, Outbox& out) noexcept;

  const ShardConfig& config_;
  const Group& group_;
  const Links& links_;
  const OpTable& ops_;
  std::vector<Met> met_;  ///< by link
  std::uint32_t hellos_sent_ = 0;
};

}  // namespace gradwire::collective
