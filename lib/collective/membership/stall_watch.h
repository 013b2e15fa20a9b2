// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// For how long nothing has moved in a group, and whether it is stuck: nothing moves though every
/// rank has posted the op.
///
/// A rank knows only what the next rank posted. So if nothing moves with its oldest op, it asks
/// round the ring. Each rank that has posted that op hands the question on, with the shortest time
/// for which nothing moved so far; a rank that has not posted it drops the question. A question
/// that comes back shows that all have posted, and that packets get through. Several must
/// come back, a while apart: after an outage the first may be faster than a retransmission.
///
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include "base/types.h"
#include "collective/fixed_queue.h"
#include "wire/packet.h"

namespace gradwire::collective {

class StallWatch {
 public:
  StallWatch(std::uint16_t rank, std::uint16_t nranks, TimeNs stuck_ns)
      : rank_(rank), stuck_ns_(stuck_ns), questions_(nranks) {}

  /// Something arrived, was acknowledged or left the backend.
  void moved(TimeNs now) noexcept { moved_at_ = now; }
  [[nodiscard]] TimeNs moved_at() const noexcept { return moved_at_; }
  /// How long nothing has moved, counting only time in which this lane polled.
  [[nodiscard]] TimeNs stalled_ns() const noexcept { return stalled_ns_; }

  /// @param round  time that this lane has polled since the last call.
  void count(TimeNs round) noexcept;
  /// An op is unfinished and nothing moves with it: asks the other ranks from time to time.
  /// @param alone  there is no other rank.
  /// @return whether the group is stuck; without other ranks it knows that by itself.
  [[nodiscard]] bool look(std::uint64_t oldest_unfinished, bool alone) noexcept;
  /// Another rank's question is handed on if this rank has posted the op.
  void hand_on(const wire::ProgressCheckBody& check, std::uint64_t posted) noexcept;
  /// This rank's question came back, of the op that is still its oldest.
  /// @return whether the group is stuck.
  [[nodiscard]] bool on_return(const wire::ProgressCheckBody& check) noexcept;

  /// To be sent to the next rank.
  [[nodiscard]] FixedQueue<wire::ProgressCheckBody>& questions() noexcept { return questions_; }
  [[nodiscard]] bool asks() const noexcept { return !questions_.empty(); }

 private:
  [[nodiscard]] std::uint64_t shortest(const wire::ProgressCheckBody& check) const noexcept;
  void ask(const wire::ProgressCheckBody& check) noexcept;

  std::uint16_t rank_;
  TimeNs stuck_ns_;
  TimeNs moved_at_ = 0;
  TimeNs moved_seen_ = 0;       ///< moved_at_ when stalled_ns_ began
  TimeNs stalled_ns_ = 0;       ///< since then, counted only while this lane polls
  TimeNs next_check_ns_ = 0;    ///< of stalled_ns_
  TimeNs next_return_ns_ = 0;   ///< of stalled_ns_: one that returns earlier does not count
  std::uint32_t returned_ = 0;  ///< questions, round the ring since then
  FixedQueue<wire::ProgressCheckBody> questions_;
};

}  // namespace gradwire::collective
