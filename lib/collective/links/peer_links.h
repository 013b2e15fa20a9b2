// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What any two ranks of a group need of each other off the ring, whatever goes between them:
/// whether the other rank is there, when it is asked, and how long a packet takes there and back.
/// Direct ops and transfers say of whom they await something, and what a question to it is.
///
/// Time is counted in two ways. `now` is the lane's clock. Polled time is the sum of the rounds in
/// which the lane polled: while a host stands still, nobody else is silent.
///
/// Rules (doc/protocol.md, Silence):
///   1. A rank's silence counts from the moment when it was heard last or, if that is later, when
///      the wait for it began.
///   2. Whatever comes from a rank ends its silence, and answers all questions that went there.
///   3. A rank that is awaited is asked: seldom at first, since all who wait for others ask, and
///      slow ports would carry nothing else. In the last half of the limit it is asked kAsksInLimit
///      times in a silence limit, so that kUnansweredMin questions fit into that half.
///   4. A rank is silent if nothing came from it for its limit, and kUnansweredMin questions have
///      no answer. If a fifth of the questions and a fifth of the answers is lost, all of them are
///      lost once in 10^7 times. A rank that was never heard may not have been started yet: its
///      limit is longer by what is left of the formation limit.
///   5. All ranks together are asked kAsksMax times in a ping interval at most. The next look
///      begins where one had to stop, so every rank gets its turn.
///   6. What was not answered is repeated after a probe timeout (RFC 9002) that doubles.
///
/// So nobody waits for ever: whoever is awaited is asked (3, 5) until it answers (2) or is silent
/// (4), and the shard ends the group if a rank is silent. What answers but does not bring what is
/// awaited is for direct ops and transfers to judge.
///
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"
#include "collective/links/peer_ends.h"
#include "collective/shard_config.h"
#include "transport/rtt.h"

namespace gradwire::collective {

/// So many questions must go unanswered before a rank counts as silent, or be answered in vain.
inline constexpr std::uint32_t kUnansweredMin = 16;

/// A rank that is silent, or that answers but does not bring what is awaited of it.
struct PeerSilence {
  std::uint16_t rank = 0;
  TimeNs for_ns = 0;
  bool never_heard = false;
  bool in_vain = false;  ///< it answers
};

class PeerLinks {
 public:
  static constexpr std::uint32_t kAsksMax = 64;
  static constexpr TimeNs kAsksInLimit = 40;
  /// Until the last half of the limit a rank is asked so often in a silence limit.
  static constexpr TimeNs kAsksFirst = 5;

  /// @param ends  of the same ranks; both parameters outlive this.
  PeerLinks(const ShardConfig& config, const PeerEnds& ends);

  [[nodiscard]] LinkEnd& end(std::uint16_t rank) const noexcept { return ends_.of(rank); }
  [[nodiscard]] const PeerEnds& ends() const noexcept { return ends_; }

  // Hearing.
  void count(TimeNs round) noexcept { polled_ += round; }
  [[nodiscard]] TimeNs polled() const noexcept { return polled_; }
  void hear(std::uint16_t rank) noexcept {
    Peer& peer = peers_[rank];
    peer.ever_heard = true;
    peer.heard_at = polled_;
    peer.unanswered = 0;
  }
  /// Nothing was awaited of the rank, and now something is.
  void begin_wait(std::uint16_t rank) noexcept {
    peers_[rank].heard_at = polled_;
    peers_[rank].unanswered = 0;
  }
  /// For how long nothing came from there, in polled time.
  [[nodiscard]] TimeNs quiet(std::uint16_t rank) const noexcept {
    return polled_ - peers_[rank].heard_at;
  }
  [[nodiscard]] bool ever_heard(std::uint16_t rank) const noexcept {
    return peers_[rank].ever_heard;
  }

  // Silence.
  /// For how long nothing may come from there.
  [[nodiscard]] TimeNs limit(std::uint16_t rank) const noexcept {
    const Peer& peer = peers_[rank];
    const TimeNs forms = peer.ever_heard ? 0 : timeouts_.formation_ns - peer.heard_at;
    return timeouts_.silence_ns + std::max<TimeNs>(forms, 0);
  }
  /// Until the last half of its limit begins; 0 or less if it has begun.
  [[nodiscard]] TimeNs until_late(std::uint16_t rank) const noexcept {
    return limit(rank) - timeouts_.silence_ns / 2 - quiet(rank);
  }
  [[nodiscard]] bool is_silent(std::uint16_t rank) const noexcept {
    return peers_[rank].unanswered >= kUnansweredMin && quiet(rank) >= limit(rank);
  }
  void found_silent(std::uint16_t rank) noexcept {
    silent_ = PeerSilence{rank, quiet(rank), !ever_heard(rank), false};
  }
  /// @param for_ns  that nothing came of what is awaited.
  void found_in_vain(std::uint16_t rank, TimeNs for_ns) noexcept {
    silent_ = PeerSilence{rank, for_ns, false, true};
  }
  /// Once, whoever was found last.
  [[nodiscard]] std::optional<PeerSilence> take_silent() noexcept {
    return std::exchange(silent_, std::nullopt);
  }

  // Questions.
  /// A question went there.
  void asked(std::uint16_t rank) noexcept { ++peers_[rank].unanswered; }
  /// Questions that went there since it was heard.
  [[nodiscard]] std::uint32_t unanswered(std::uint16_t rank) const noexcept {
    return peers_[rank].unanswered;
  }
  /// Whether all ranks together may be asked once more.
  [[nodiscard]] bool may_ask(TimeNs now) noexcept {
    if (now - asks_since_ >= timeouts_.ping_interval_ns) {
      asks_since_ = now;
      asks_ = 0;
    }
    return asks_ < kAsksMax;
  }
  /// It will be.
  void count_ask() noexcept { ++asks_; }
  /// How often a rank is asked in the last half of its limit.
  [[nodiscard]] TimeNs late_interval() const noexcept {
    return timeouts_.silence_ns / kAsksInLimit;
  }

  // Ranks that are asked by rule 3 without further ado.
  /// The rank is awaited from now on.
  void await(std::uint16_t rank, TimeNs now) noexcept;
  /// Asks whoever is due.
  /// @param is_awaited  (rank): whether it still is.
  /// @param ask         (rank): sends a question there, soon.
  /// @return when the next one is due; kNever if none is awaited.
  template <class IsAwaited, class Ask>
  TimeNs look_at_awaited(TimeNs now, IsAwaited&& is_awaited, Ask&& ask) noexcept;
  /// When a rank that is awaited from now on is due.
  [[nodiscard]] TimeNs first_ask(TimeNs now) const noexcept { return now + first_interval(); }
  void drop_all() noexcept;

  // Round-trip times.
  /// The packet of that number went there: what echoes it tells the time.
  void time(std::uint16_t rank, std::uint64_t number, TimeNs now) noexcept {
    peers_[rank].timed = number;
    peers_[rank].timed_at = now;
  }
  /// @param low_half  of the number that was echoed.
  /// @param delay_ns  for which the other rank kept the echo; kNever if that is not known.
  void echoed(std::uint16_t rank, std::uint32_t low_half, TimeNs delay_ns, TimeNs now) noexcept {
    Peer& peer = peers_[rank];
    if (peer.timed == 0 || low_half != static_cast<std::uint32_t>(peer.timed)) return;
    peer.timed = 0;
    if (delay_ns != kNever) sample(rank, now - peer.timed_at - delay_ns);
  }
  void sample(std::uint16_t rank, TimeNs took_ns) noexcept {
    peers_[rank].rtt.sample(std::max<TimeNs>(took_ns, 1), 0);
  }
  [[nodiscard]] TimeNs rtt(std::uint16_t rank) const noexcept {
    return peers_[rank].rtt.smoothed_ns();
  }
  /// For how long nothing new may be heard of a packet until it is repeated.
  /// @param tries  how often it was repeated.
  /// @param most   it is never longer, whatever round-trip time was measured.
  [[nodiscard]] TimeNs repeated_after(std::uint16_t rank, std::uint32_t tries,
                                      TimeNs most) const noexcept;

 private:
  /// A timeout is doubled at most so often.
  static constexpr std::uint32_t kShiftMax = 20;

  struct Peer {
    TimeNs heard_at = 0;  ///< polled time; or when a wait for it began
    std::uint32_t unanswered = 0;
    bool ever_heard = false;
    bool listed = false;      ///< in awaited_
    TimeNs next_ask = 0;      ///< if listed
    std::uint64_t timed = 0;  ///< number of a packet whose echo tells the time; 0: none
    TimeNs timed_at = 0;
    transport::RttEstimator rtt;
  };

  [[nodiscard]] TimeNs first_interval() const noexcept { return timeouts_.silence_ns / kAsksFirst; }

  const ShardTimeouts& timeouts_;
  const transport::SenderConfig& sender_;
  const PeerEnds& ends_;
  std::vector<Peer> peers_;             ///< [all_ranks()]; of this rank nothing
  std::vector<std::uint16_t> awaited_;  ///< and some that are not any more
  std::size_t ask_from_ = 0;            ///< in awaited_: where the last look ended
  TimeNs polled_ = 0;
  TimeNs asks_since_ = 0;  ///< that they are counted
  std::uint32_t asks_ = 0;
  std::optional<PeerSilence> silent_;
};

template <class IsAwaited, class Ask>
TimeNs PeerLinks::look_at_awaited(TimeNs now, IsAwaited&& is_awaited, Ask&& ask) noexcept {
  std::erase_if(awaited_, [&](std::uint16_t rank) {
    peers_[rank].listed = is_awaited(rank);
    return !peers_[rank].listed;
  });
  TimeNs next = kNever;
  if (awaited_.empty()) return next;
  (void)may_ask(now);
  const std::size_t from = ask_from_ % awaited_.size();
  for (std::size_t i = 0; i < awaited_.size(); ++i) {
    const std::size_t at = (from + i) % awaited_.size();
    const std::uint16_t rank = awaited_[at];
    Peer& peer = peers_[rank];
    if (now >= peer.next_ask) {
      if (!may_ask(now)) {
        ask_from_ = at;
        return std::min(next, asks_since_ + timeouts_.ping_interval_ns);
      }
      const TimeNs until = until_late(rank);
      peer.next_ask = now + (until > 0 ? std::min(until, first_interval()) : late_interval());
      if (is_silent(rank)) {
        found_silent(rank);
      } else if (quiet(rank) >= first_interval()) {
        count_ask();
        ask(rank);
      }
    }
    next = std::min(next, peer.next_ask);
  }
  return next;
}

}  // namespace gradwire::collective
