// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What any two ranks of a group need of each other off the ring, whatever goes between them:
/// whether the other rank is there, when it is asked, and how long a packet takes there and back.
/// Direct ops and transfers use it (PeerUser): they say of whom they await something, send
/// questions, and repeat what was lost.
///
/// Time is counted in two ways. `now` is the lane's clock. Polled time is the sum of the rounds in
/// which the lane polled: while a host stands still, nobody else is silent.
///
/// Rules (doc/protocol/off_ring.md, Ranks off the ring):
///   1. A rank's silence counts from the moment when it was heard last or, if that is later, when
///      the wait for it began. A wait begins when the first user awaits the rank.
///   2. Whatever comes from a rank ends its silence, and answers all questions that went there.
///   3. A rank that is awaited is asked if nothing came for a fifth of a silence limit: seldom at
///      first, kAsksFirst times in a limit, since all who wait for others ask, and slow ports would
///      carry nothing else; in the last half of its limit kAsksInLimit times. So it is asked 26
///      times before it counts as silent.
///   4. A rank is silent if nothing came from it for its limit, and kUnansweredMin questions have
///      no answer. If a third of the questions and a third of the answers is lost, all 26 are lost
///      once in 10^6 times. A rank that was never heard may not have been started yet: its
///      limit is longer by what is left of the formation limit.
///   5. All ranks together are asked kAsksMax times in a ping interval at most. The next look goes
///      on where one had to stop, so every rank gets its turn. Those in doubt, which are in the
///      last half of their limit and have not answered, have kAsksMax questions of their own: so
///      however many ranks are late and answer, one that does not counts as silent in time. A look
///      is at Sweep::kLooksInRound ranks. What users repeat (8) is theirs to bound.
///   6. If several users await a rank they ask it by turns: packets of one kind may all get lost.
///   7. Who is asked several times before it answers sends several answers, kAnswersMax at most:
///      when a host goes on that stood still all questions come at once, and one answer may be
///      lost.
///   8. What was not answered is repeated after a probe timeout (RFC 9002) that doubles.
///
/// So nobody waits for ever: whoever is awaited is asked (3, 5) until it answers (2) or is silent
/// (4), and the shard ends the group if a rank is silent. What answers but does not bring what is
/// awaited is for the users to judge.
///
/// One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/require.h"
#include "base/types.h"
#include "collective/links/peer_ends.h"
#include "collective/links/sweep.h"
#include "collective/shard_config.h"
#include "transport/rtt.h"

namespace gradwire::collective {

/// So many questions must go unanswered before a rank counts as silent, or be answered in vain.
inline constexpr std::uint32_t kUnansweredMin = 16;

/// Who awaits something of other ranks.
class PeerUser {
 public:
  /// Whether something of the rank is missing, or is to be acknowledged by it.
  [[nodiscard]] virtual bool waits_for(std::uint16_t rank) const noexcept = 0;
  /// A question to a rank for which it waits goes soon: PeerLinks::asked() when it does.
  virtual void ask(std::uint16_t rank, TimeNs now) noexcept = 0;
  /// A rank for which it waits is silent: PeerLinks::found_silent() if that ends the group.
  virtual void on_silent(std::uint16_t rank, TimeNs now) noexcept = 0;

 protected:
  ~PeerUser() = default;
};

/// What a rank that answers does not bring, however often it is asked.
enum class InVain : std::uint8_t { kNothing, kAcknowledgement, kPiece, kTile };

/// A rank because of which the group ends.
struct PeerSilence {
  std::uint16_t rank = 0;
  TimeNs for_ns = 0;
  bool never_heard = false;
  InVain in_vain = InVain::kNothing;  ///< else it answers
};

class PeerLinks {
 public:
  static constexpr std::uint32_t kAsksMax = 64;
  static constexpr int kAsksInLimit = 50;
  /// A rank of which nothing came for this part of a silence limit is asked, and so often in a
  /// limit from then on, until the last half of its limit begins.
  static constexpr int kAsksFirst = 5;

  static constexpr std::uint8_t kAnswersMax = 4;
  /// Who may use it: direct ops, transfers, and tiles when there are any.
  static constexpr std::size_t kUsersMax = 3;

  /// @param ends  of the same ranks; both parameters outlive this.
  PeerLinks(const ShardConfig& config, const PeerEnds& ends);
  // Its users refer to it.
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  /// Before anything is awaited; the user stays as long as this is used.
  void add(PeerUser& user) noexcept;

  [[nodiscard]] LinkEnd& end(std::uint16_t rank) const noexcept { return ends_.of(rank); }
  [[nodiscard]] const PeerEnds& ends() const noexcept { return ends_; }

  // Hearing.
  void count(TimeNs round) noexcept {
    require(round >= 0, "polled time goes on");
    polled_ += round;
  }
  [[nodiscard]] TimeNs polled() const noexcept { return polled_; }
  /// A packet of one of the users' types came.
  void came(const wire::CommonHeader& header) noexcept {
    hear(header.from_rank);
    ends_.note(header.from_rank, header.packet_number);
  }
  /// The rank asks, and is owed an answer.
  void was_asked(std::uint16_t rank) noexcept {
    std::uint8_t& owed = peers_[rank].answers_owed;
    owed = std::min<std::uint8_t>(owed + 1, kAnswersMax);
  }
  /// An answer went there. @return whether another is owed, which goes at once.
  [[nodiscard]] bool answered(std::uint16_t rank) noexcept {
    std::uint8_t& owed = peers_[rank].answers_owed;
    if (owed > 0) --owed;
    return owed > 0;
  }
  /// It is there: it came otherwise.
  void hear(std::uint16_t rank) noexcept {
    Peer& peer = peers_[rank];
    peer.ever_heard = true;
    peer.heard_at = polled_;
    peer.unanswered = 0;
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
    find({rank, quiet(rank), !ever_heard(rank), InVain::kNothing});
  }
  /// @param for_ns  that nothing came of what is awaited.
  void found_in_vain(std::uint16_t rank, TimeNs for_ns, InVain what) noexcept {
    find({rank, for_ns, false, what});
  }
  /// Once, whoever was silent for the longest time of those that were found since.
  [[nodiscard]] std::optional<PeerSilence> take_silent() noexcept {
    return std::exchange(silent_, std::nullopt);
  }

  // Questions.
  /// A question went there.
  void asked(std::uint16_t rank) noexcept { ++peers_[rank].unanswered; }
  /// Whether a question says that those before it were not answered.
  /// @param tries  how often this one goes, with this time. Many may ask at once: that says
  /// nothing.
  [[nodiscard]] bool says_again(std::uint16_t rank, std::uint32_t tries) const noexcept {
    if (!end(rank).sources().known) return false;
    const std::uint32_t before = std::max(tries, std::uint32_t{1}) - 1;
    return LinkEnd::asks_again(std::max(before, unanswered(rank))) &&
           quiet(rank) >= timeouts_.ping_interval_ns;
  }
  /// Questions that went there since it was heard.
  [[nodiscard]] std::uint32_t unanswered(std::uint16_t rank) const noexcept {
    return peers_[rank].unanswered;
  }
  /// Whether all ranks together may be asked once more.
  [[nodiscard]] bool may_ask(TimeNs now) noexcept {
    if (now - asks_since_ >= timeouts_.ping_interval_ns) {
      asks_since_ = now;
      asks_ = doubt_asks_ = 0;
    }
    return asks_ < kAsksMax;
  }
  /// It will be.
  void count_ask() noexcept { ++asks_; }

  // Waiting.
  /// The user, which did not wait for the rank, is about to.
  void begin_wait(std::uint16_t rank, const PeerUser& user, TimeNs now) noexcept;
  /// Whether it is asked when it is due.
  [[nodiscard]] bool is_listed(std::uint16_t rank) const noexcept { return peers_[rank].listed; }
  /// Asks whoever is due. @return whether somebody may have been.
  bool look(TimeNs now) noexcept;
  /// Packets go to the rank another way from now on: if it is awaited, the next look asks it.
  void ask_at_once(std::uint16_t rank) noexcept;
  /// When look() has something to do; kNever if nobody is awaited.
  [[nodiscard]] TimeNs deadline() const noexcept {
    return std::min(awaited_.next_due(), doubts_due_);
  }
  /// The rank for which the user waits and that was heard the longest time ago.
  [[nodiscard]] std::optional<std::uint16_t> least_heard(const PeerUser& user) const noexcept;
  /// The group ended here.
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
  /// What is answered at once has mostly been by then.
  [[nodiscard]] TimeNs answered_within(std::uint16_t rank) const noexcept {
    const transport::RttEstimator& rtt = peers_[rank].rtt;
    return 2 * rtt.smoothed_ns() + 4 * rtt.variance_ns();
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
    bool listed = false;    ///< in awaited_
    bool at_once = false;   ///< it is asked though it was heard lately
    std::uint8_t turn = 0;  ///< user that asks next, if it waits
    std::uint8_t answers_owed = 0;
    TimeNs next_ask = 0;      ///< if listed
    std::uint64_t timed = 0;  ///< number of a packet whose echo tells the time; 0: none
    TimeNs timed_at = 0;
    transport::RttEstimator rtt;
  };

  [[nodiscard]] TimeNs first_interval() const noexcept { return timeouts_.silence_ns / kAsksFirst; }
  /// @param but  a user that is not looked at, or none.
  [[nodiscard]] bool is_awaited(std::uint16_t rank, const PeerUser* but) const noexcept;
  void ask_if_due(std::uint16_t rank, TimeNs now) noexcept;
  /// All that may be asked are asked: now those that are in doubt.
  void look_at_doubtful(TimeNs now) noexcept;
  [[nodiscard]] bool is_doubtful(std::uint16_t rank) const noexcept {
    return peers_[rank].unanswered != 0 && until_late(rank) <= 0;
  }
  void find(const PeerSilence& silent) noexcept {
    if (!silent_ || silent.for_ns > silent_->for_ns) silent_ = silent;
  }

  const ShardTimeouts& timeouts_;
  const transport::SenderConfig& sender_;
  const PeerEnds& ends_;
  std::array<PeerUser*, kUsersMax> users_{};
  std::size_t user_count_ = 0;
  std::vector<Peer> peers_;       ///< [all_ranks()]; of this rank nothing
  Sweep<std::uint16_t> awaited_;  ///< and some that are not any more
  std::size_t doubts_left_ = 0;   ///< of awaited_, from the front: not looked at for doubts
  TimeNs doubts_due_ = kNever;    ///< when they are; kNever unless all questions are asked
  TimeNs polled_ = 0;
  TimeNs asks_since_ = 0;  ///< that they are counted
  std::uint32_t asks_ = 0;
  std::uint32_t doubt_asks_ = 0;  ///< beyond these
  std::optional<PeerSilence> silent_;
};

}  // namespace gradwire::collective
