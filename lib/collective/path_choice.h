// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// By which of several paths a link's data goes. If nothing that was sent by a path is acknowledged
/// for an eighth of the silence limit, the other paths are asked by hellos, which are as long as
/// full packets; after a quarter of it the link takes one that has answered. If none answers it
/// stays, and its rank is dead when the limit is over. A path that was left is asked all the time,
/// and taken again when it has answered often enough. doc/protocol.md (Rails) says why nothing is
/// applied twice and nobody can move a link off a living path.
///
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/link_end.h"
#include "collective/shard_config.h"

namespace gradwire::collective {

class PathChoice {
 public:
  /// @param end  of a rank that data goes to, with several paths.
  PathChoice(const ShardConfig& config, LinkEnd& end);

  /// What a packet says.
  void on_acknowledged(std::uint64_t newest) noexcept {
    if (newest >= end_.first_number()) silence_ns_ = 0;
  }
  void on_hello_ack(PathIndex path) noexcept;

  enum class Move : std::uint8_t { kNone, kAway, kBack };
  /// A round of this lane. The link takes another path if the result is not kNone.
  /// @param round  time that this lane has polled since the last call.
  Move run(TimeNs round, TimeNs now) noexcept;
  /// A path by which a hello is due; kNoPath if none is.
  [[nodiscard]] PathIndex next_to_ask() const noexcept;
  void asked(PathIndex path) noexcept { to_ask_ &= ~(1u << path); }
  /// Earliest time at which run() has something to do, as long as rounds come often enough.
  [[nodiscard]] TimeNs deadline() const noexcept {
    return is_suspicious() || end_.path() != 0 ? next_ask_ : kNever;
  }

 private:
  struct Path {
    TimeNs answered_at = -1;      ///< its first answer while the link's path was silent; -1: none
    bool answer_missing = false;  ///< it was asked and has not answered yet
    std::uint32_t in_row = 0;     ///< answers without one missing
  };
  static constexpr std::uint32_t kAnswersMin = 8;
  static constexpr std::uint32_t kLeftMax = 5;

  [[nodiscard]] bool is_suspicious() const noexcept { return silence_ns_ >= suspicious_ns_; }
  void ask(PathIndex path) noexcept;
  void look_for_another() noexcept;
  [[nodiscard]] bool may_go_back() const noexcept {
    return paths_[0].in_row >= kAnswersMin << left_;
  }
  void take(PathIndex path) noexcept;

  LinkEnd& end_;
  TimeNs suspicious_ns_;
  TimeNs leave_ns_;
  TimeNs spacing_ns_;      ///< of hellos
  TimeNs silence_ns_ = 0;  ///< polled time in which nothing that went by this path was acknowledged
  TimeNs polled_ns_ = 0;
  TimeNs next_ask_ = 0;
  std::uint32_t to_ask_ = 0;  ///< paths, a bit for each
  std::uint32_t left_ = 0;    ///< how often the first path was left, up to kLeftMax
  std::vector<Path> paths_;
};

}  // namespace gradwire::collective
