// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// By which of several paths a link's data goes, and from which source port. If nothing that was
/// sent by a path is acknowledged for an eighth of the silence limit, the other paths are asked by
/// hellos, which are as long as full packets, and the path itself from other source ports. If one
/// of these is answered, and the one in use is not, the link takes it a sixteenth of the limit
/// later; after a quarter of it the link takes a path that has answered. If none answers it stays,
/// and its rank is dead when the limit is over. A path that was left is asked all the time, and
/// taken again when it has answered often enough; source ports are all alike, and none is gone back
/// to. doc/protocol/paths.md (Rails, Source ports) says why nothing is applied twice and nobody can
/// move a link off a living path.
///
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "collective/links/link_end.h"
#include "collective/shard_config.h"

namespace gradwire::collective {

class PathChoice {
 public:
  /// @param end  of a rank that data goes to.
  PathChoice(const ShardConfig& config, LinkEnd& end);

  /// How a hello goes.
  struct Way {
    PathIndex path = kNoPath;
    std::uint8_t source = 0;
  };

  /// What a packet says.
  /// @param data  data was acknowledged, or there is none to be.
  void on_acknowledged(std::uint64_t newest, bool data) noexcept {
    if (newest < end_.first_number()) return;
    silence_ns_ = 0;
    if (data) data_silence_ns_ = 0;
  }
  /// @param source       of this rank's, from which the hello went, and one more; 0: not said.
  /// @param from_source  of the other rank's, from which the answer came; likewise.
  void on_hello_ack(PathIndex path, std::uint8_t source, std::uint8_t from_source) noexcept;
  /// From which source port of the other rank's an answer came by the path; as from_source. 0 if
  /// acknowledgements come: then the port that it has is good.
  [[nodiscard]] std::uint8_t heard_from(PathIndex path) const noexcept {
    return silence_ns_ >= suspicious_ns_ ? paths_[path].heard_from : 0;
  }
  /// The path goes from another source port now, which the other rank asked for.
  void begin_anew(TimeNs now) noexcept;

  enum class Move : std::uint8_t { kNone, kAway, kBack, kSource };
  /// A round of this lane. The link goes another way if the result is not kNone.
  /// @param round  time that this lane has polled since the last call.
  /// @param spare  the port is not behind. If it is, one source port is asked at a time.
  Move run(TimeNs round, TimeNs now, bool spare = true) noexcept;
  /// How a hello is to go; kNoPath if none is due.
  [[nodiscard]] Way next_to_ask() const noexcept;
  void asked(const Way& way) noexcept;
  /// Earliest time at which run() has something to do, as long as rounds come often enough.
  [[nodiscard]] TimeNs deadline() const noexcept {
    return is_suspicious() || end_.path() != 0 ? next_ask_ : kNever;
  }

 private:
  struct Path {
    TimeNs answered_at = -1;      ///< its first answer while the link's path was silent; -1: none
    bool answer_missing = false;  ///< it was asked and has not answered yet
    std::uint32_t in_row = 0;     ///< answers without one missing
    std::uint8_t asked_from =
        0;                      ///< a source port; of the first path, if it was left, the last one
    std::uint8_t answered = 0;  ///< the source port from which it was asked then
    std::uint8_t heard_from = 0;
  };
  /// Of the link's path, while that is silent: of the last 8 rounds in which all were asked, in
  /// which it was asked and in which of those it answered. The last one is the lowest bit.
  struct Source {
    TimeNs answered_at = -1;
    std::uint8_t asked = 0;
    std::uint8_t answered = 0;
    [[nodiscard]] std::uint32_t asks() const noexcept;
    [[nodiscard]] std::uint32_t answers() const noexcept;
  };
  static constexpr std::uint32_t kAnswersMin = 8;
  static constexpr std::uint32_t kLeftMax = 5;
  // Of the path that is silent: how many source ports are asked at once, and every time after that.
  static constexpr std::uint32_t kSourcesFirst = 8;
  static constexpr std::uint32_t kSourcesNext = 4;
  static constexpr std::uint32_t kRoundsHeard = 4;  ///< for which the other rank is told the same
  static constexpr std::uint32_t kCalmMax = 3;

  [[nodiscard]] bool has_sources() const noexcept { return end_.sources().count > 1; }
  /// For how long something that should have been acknowledged was not.
  [[nodiscard]] TimeNs silence_ns() const noexcept {
    return has_sources() ? std::max(silence_ns_, data_silence_ns_) : silence_ns_;
  }
  [[nodiscard]] bool is_suspicious() const noexcept { return silence_ns() >= suspicious_ns_; }
  [[nodiscard]] const Source& source_in_use() const noexcept {
    return sources_[end_.source_of(end_.path())];
  }
  void ask_all(TimeNs now, bool spare) noexcept;
  void ask(PathIndex path, bool spare) noexcept;
  void ask_sources(bool spare) noexcept;
  [[nodiscard]] bool look_for_source(TimeNs now) noexcept;
  void look_for_another(TimeNs now) noexcept;
  [[nodiscard]] bool may_go_back() const noexcept {
    return paths_[0].in_row >= kAnswersMin << left_;
  }
  void take(PathIndex path, std::uint8_t source, TimeNs now) noexcept;
  void forget_answers(TimeNs now) noexcept;
  [[nodiscard]] bool is_bad_of_late(TimeNs round, TimeNs now) const noexcept;

  LinkEnd& end_;
  TimeNs suspicious_ns_;
  TimeNs leave_ns_;
  TimeNs spacing_ns_;      ///< of hellos
  TimeNs silence_ns_ = 0;  ///< polled time in which nothing that went this way was acknowledged
  TimeNs data_silence_ns_ = 0;  ///< and no data, though there was some: pings are short
  TimeNs polled_ns_ = 0;
  TimeNs next_ask_ = 0;
  TimeNs asked_all_at_ = 0;
  bool answers_count_ = false;        ///< something may have answered since they were forgotten
  std::uint32_t to_ask_ = 0;          ///< paths, a bit for each
  std::uint32_t sources_to_ask_ = 0;  ///< of the link's path, likewise
  std::uint32_t next_source_ = 0;     ///< that is asked, modulo their number
  std::uint32_t rounds_ = 0;          ///< in which all were asked, since the path fell silent
  std::uint32_t calm_ = 0;            ///< of those, in a row: the way in use answered
  std::uint32_t left_ = 0;            ///< how often the first path was left, up to kLeftMax
  std::vector<Path> paths_;
  std::array<Source, wire::kSourcePortsMax> sources_{};
};

}  // namespace gradwire::collective
