// SPDX-License-Identifier: BSD-3-Clause
#include "collective/path_choice.h"

#include <algorithm>
#include <bit>

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

void PathChoice::on_hello_ack(PathIndex path) noexcept {
  if (path >= paths_.size()) return;
  Path& answered = paths_[path];
  if (answered.answer_missing) ++answered.in_row;
  answered.answer_missing = false;
  if (is_suspicious() && answered.answered_at < 0) answered.answered_at = polled_ns_;
}

void PathChoice::ask(PathIndex path) noexcept {
  Path& asked = paths_[path];
  if (asked.answer_missing) asked.in_row = 0;
  asked.answer_missing = true;
  to_ask_ |= 1u << path;
}

PathChoice::Move PathChoice::run(TimeNs round, TimeNs now) noexcept {
  polled_ns_ += round;
  silence_ns_ += round;
  if (!is_suspicious()) {
    for (Path& path : paths_) path.answered_at = -1;
    if (end_.path() == 0) {
      to_ask_ = 0;
      return Move::kNone;
    }
    if (may_go_back()) {
      // A path that comes and goes has to show ever longer that it is here.
      left_ = std::min(left_ + 1, kLeftMax);
      take(0);
      return Move::kBack;
    }
    if (now >= next_ask_) {
      next_ask_ = now + spacing_ns_;
      ask(0);
    }
    return Move::kNone;
  }
  if (now >= next_ask_) {
    next_ask_ = now + spacing_ns_;
    for (std::size_t i = 0; i < paths_.size(); ++i) ask(static_cast<PathIndex>(i));
  }
  if (silence_ns_ < leave_ns_) return Move::kNone;
  const PathIndex before = end_.path();
  look_for_another();
  return end_.path() == before ? Move::kNone : Move::kAway;
}

void PathChoice::look_for_another() noexcept {
  for (std::size_t ahead = 1; ahead < paths_.size(); ++ahead) {
    const std::size_t index = (end_.path() + ahead) % paths_.size();
    const TimeNs answered_at = paths_[index].answered_at;
    // A host that stood still answers by all paths when it goes on. A little later its
    // acknowledgements are here, too, if they can come.
    if (answered_at < 0 || polled_ns_ - answered_at < spacing_ns_) continue;
    take(static_cast<PathIndex>(index));
    return;
  }
}

void PathChoice::take(PathIndex path) noexcept {
  end_.take_path(path);
  silence_ns_ = 0;
  to_ask_ = 0;
  std::fill(paths_.begin(), paths_.end(), Path{});
}

PathIndex PathChoice::next_to_ask() const noexcept {
  return to_ask_ == 0 ? kNoPath : static_cast<PathIndex>(std::countr_zero(to_ask_));
}

}  // namespace gradwire::collective
