// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/path_choice.h"

#include <algorithm>
#include <bit>

#include "base/require.h"

namespace gradwire::collective {
namespace {

// Shares of the silence limit.
constexpr TimeNs kSuspiciousShare = 8;
constexpr TimeNs kLeaveShare = 4;
constexpr TimeNs kAskShare = 32;

}  // namespace

PathChoice::PathChoice(const ShardConfig& config, LinkEnd& end)
    : end_(end),
      // A path by which nothing goes is heard of once in a ping interval.
      suspicious_ns_(std::max(config.timeouts.silence_ns / kSuspiciousShare,
                              2 * config.timeouts.ping_interval_ns)),
      leave_ns_(
          std::max(config.timeouts.silence_ns / kLeaveShare, 3 * config.timeouts.ping_interval_ns)),
      spacing_ns_(config.timeouts.silence_ns / kAskShare),
      paths_(end.path_count()) {
  end.be_watched();
}

std::uint32_t PathChoice::Source::asks() const noexcept {
  return static_cast<std::uint32_t>(std::popcount(asked));
}
std::uint32_t PathChoice::Source::answers() const noexcept {
  return static_cast<std::uint32_t>(std::popcount(answered));
}

void PathChoice::on_hello_ack(PathIndex path, std::uint8_t source,
                              std::uint8_t from_source) noexcept {
  if (path >= paths_.size() || source > end_.sources().count) return;
  Path& answered = paths_[path];
  if (answered.answer_missing) ++answered.in_row;
  answered.answer_missing = false;
  if (!is_suspicious()) return;
  answers_count_ = true;
  // The first one, since the other rank begins with the port that it has.
  if (answered.heard_from == 0) answered.heard_from = from_source;
  const std::uint8_t asked_from =
      source != 0 ? static_cast<std::uint8_t>(source - 1) : end_.source_of(path);
  if (answered.answered_at < 0) {
    answered.answered_at = polled_ns_;
    answered.answered = asked_from;
  }
  if (path != end_.path()) return;
  Source& way = sources_[asked_from];
  if (way.answered_at < 0) way.answered_at = polled_ns_;
  // It is answered from several ports, or late: that counts for the last time that it was asked.
  way.answered |= static_cast<std::uint8_t>(way.asked & -way.asked);
}

void PathChoice::ask(PathIndex path, bool spare) noexcept {
  require(path < paths_.size(), "a path that is asked is there");
  Path& asked = paths_[path];
  const bool in_vain = asked.answer_missing;
  if (in_vain) asked.in_row = 0;
  asked.answer_missing = true;
  if (has_sources() && path == end_.path() && is_suspicious()) return ask_sources(spare);
  if (has_sources() && is_suspicious()) {
    asked.asked_from = end_.source_after(path, next_source_);
  } else if (in_vain) {
    // The path itself may be whole, and have a way that is not.
    asked.asked_from = static_cast<std::uint8_t>((asked.asked_from + 1) % end_.sources().count);
  }
  to_ask_ |= 1u << path;
}

void PathChoice::ask_sources(bool spare) noexcept {
  const std::uint8_t count = end_.sources().count;
  const std::uint8_t in_use = end_.source_of(end_.path());
  // Where the port is behind, the one in use and another by turns.
  const bool turns = !spare && rounds_ % 2 != 0;
  sources_to_ask_ = turns ? 0 : 1u << in_use;
  const std::uint32_t wanted = !spare         ? std::uint32_t{turns}
                               : rounds_ == 0 ? kSourcesFirst - 1
                                              : kSourcesNext - 1;
  std::uint32_t more = std::min(wanted, count - std::uint32_t{1});
  // One answer says little, since a port that loses half of all packets gives it every second time.
  // So those that answered whatever they were asked are asked again before others are.
  for (std::uint32_t ahead = 1; ahead < count && more > 0; ++ahead) {
    const std::uint8_t index = end_.source_after(end_.path(), ahead);
    const Source& source = sources_[index];
    if (source.asked == 0 || source.answered != source.asked) continue;
    sources_to_ask_ |= 1u << index;
    --more;
  }
  for (; more > 0; ++next_source_) {
    const std::uint32_t bit = 1u << next_source_ % count;
    if (next_source_ % count == in_use || (sources_to_ask_ & bit) != 0) continue;
    sources_to_ask_ |= bit;
    --more;
  }
}

void PathChoice::ask_all(TimeNs now, bool spare) noexcept {
  const Source& in_use = source_in_use();
  // What is not acknowledged may wait for a client. If the way is all right, it is asked less
  // often.
  const bool calm =
      silence_ns_ < suspicious_ns_ && in_use.asked != 0 && in_use.answered == in_use.asked;
  calm_ = calm ? std::min(calm_ + 1, kCalmMax) : 0;
  // Nor may questions, and the answers to them, fill a port that is full already.
  const bool seldom = has_sources() && !spare;
  next_ask_ = now + (spacing_ns_ << std::max(calm_, std::uint32_t{seldom}));
  asked_all_at_ = now;
  for (Source& source : sources_) {
    source.asked = static_cast<std::uint8_t>(source.asked << 1);
    source.answered = static_cast<std::uint8_t>(source.answered << 1);
    if (source.asked == 0) source.answered_at = -1;
  }
  if (rounds_ % kRoundsHeard == 0) {
    for (Path& path : paths_) path.heard_from = 0;
  }
  for (std::size_t i = 0; i < paths_.size(); ++i) ask(static_cast<PathIndex>(i), spare);
  ++rounds_;
}

/// Whether the way in use was good while this rank waited for something else, and is not any more:
/// then what was answered before says nothing.
bool PathChoice::is_bad_of_late(TimeNs round, TimeNs now) const noexcept {
  if (!has_sources() || rounds_ == 0) return false;
  if (silence_ns_ >= suspicious_ns_ && silence_ns_ - round < suspicious_ns_) return true;
  const Source& in_use = source_in_use();
  return calm_ != 0 && now - asked_all_at_ >= spacing_ns_ && in_use.asked != in_use.answered;
}

void PathChoice::forget_answers(TimeNs now) noexcept {
  for (Path& path : paths_) path.answered_at = -1;
  sources_.fill(Source{});
  sources_to_ask_ = 0;
  rounds_ = calm_ = 0;
  answers_count_ = false;
  // Where it was calm the next round was to be late.
  next_ask_ = std::min(next_ask_, now + spacing_ns_);
}

void PathChoice::begin_anew(TimeNs now) noexcept {
  take(end_.path(), end_.source_of(end_.path()), now);
}

PathChoice::Move PathChoice::run(TimeNs round, TimeNs now, bool spare) noexcept {
  polled_ns_ += round;
  silence_ns_ += round;
  data_silence_ns_ += round;
  if (!is_suspicious()) {
    if (rounds_ != 0 || answers_count_) forget_answers(now);
    if (end_.path() == 0) {
      to_ask_ = 0;
      return Move::kNone;
    }
    if (may_go_back()) {
      // A path that comes and goes has to show ever longer that it is here.
      left_ = std::min(left_ + 1, kLeftMax);
      take(0, paths_[0].asked_from, now);
      return Move::kBack;
    }
    if (now >= next_ask_) {
      next_ask_ = now + spacing_ns_;
      ask(0, spare);
    }
    return Move::kNone;
  }
  if (is_bad_of_late(round, now)) {
    forget_answers(now);
    next_ask_ = now;
  }
  if (now >= next_ask_) ask_all(now, spare);
  if (has_sources() && silence_ns() >= suspicious_ns_ + 2 * spacing_ns_ && look_for_source(now)) {
    return Move::kSource;
  }
  const bool short_ones_pass = silence_ns_ < leave_ns_;
  if (silence_ns() < leave_ns_ || (short_ones_pass && source_in_use().answered != 0)) {
    return Move::kNone;
  }
  const PathIndex before = end_.path();
  look_for_another(now);
  return end_.path() == before ? Move::kNone : Move::kAway;
}

/// Whether one of them is answered, where the one in use is not: else it is the way back that is
/// bad, which is the other rank's to choose, or what was sent waits for a client there.
bool PathChoice::look_for_source(TimeNs now) noexcept {
  const Source& in_use = source_in_use();
  if (in_use.asks() == 0 || in_use.answers() * 2 > in_use.asks()) return false;
  std::uint32_t most = 0;
  std::uint8_t best = 0;
  for (std::uint32_t ahead = 1; ahead < end_.sources().count; ++ahead) {
    const std::uint8_t index = end_.source_after(end_.path(), ahead);
    const Source& source = sources_[index];
    // As in look_for_another().
    if (source.answered_at < 0 || polled_ns_ - source.answered_at < spacing_ns_) continue;
    // The one in use is asked every time, each other one now and then: so shares are compared.
    const bool better = source.answers() * in_use.asks() > in_use.answers() * source.asks();
    if (!better || source.answers() <= most) continue;
    most = source.answers();
    best = index;
  }
  if (most == 0 || planted(PlantedBug::kKeepsSourcePort)) return false;
  take(end_.path(), best, now);
  return true;
}

void PathChoice::look_for_another(TimeNs now) noexcept {
  for (std::size_t ahead = 1; ahead < paths_.size(); ++ahead) {
    const std::size_t index = (end_.path() + ahead) % paths_.size();
    const TimeNs answered_at = paths_[index].answered_at;
    // A host that stood still answers by all paths when it goes on. A little later its
    // acknowledgements are here, too, if they can come.
    if (answered_at < 0 || polled_ns_ - answered_at < spacing_ns_) continue;
    take(static_cast<PathIndex>(index), paths_[index].answered, now);
    return;
  }
}

void PathChoice::take(PathIndex path, std::uint8_t source, TimeNs now) noexcept {
  require(path < paths_.size() && source < end_.sources().count, "a way that is taken is there");
  if (path != end_.path()) end_.take_path(path);
  (void)end_.take_source(path, source);
  silence_ns_ = data_silence_ns_ = 0;
  to_ask_ = 0;
  forget_answers(now);
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    paths_[i] = {.asked_from = end_.source_of(static_cast<PathIndex>(i))};
  }
}

PathChoice::Way PathChoice::next_to_ask() const noexcept {
  if (sources_to_ask_ != 0) {
    // The one in use first: a rank whose port is behind answers no other one after it.
    const std::uint8_t in_use = end_.source_of(end_.path());
    const bool first = (sources_to_ask_ >> in_use & 1) != 0;
    return {end_.path(),
            first ? in_use : static_cast<std::uint8_t>(std::countr_zero(sources_to_ask_))};
  }
  if (to_ask_ == 0) return {};
  const auto path = static_cast<PathIndex>(std::countr_zero(to_ask_));
  return {path, paths_[path].asked_from};
}

void PathChoice::asked(const Way& way) noexcept {
  if (sources_to_ask_ == 0) {
    to_ask_ &= ~(1u << way.path);
    return;
  }
  sources_to_ask_ &= ~(1u << way.source);
  sources_[way.source].asked |= 1;
}

}  // namespace gradwire::collective
