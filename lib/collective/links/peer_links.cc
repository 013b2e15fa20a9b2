// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/peer_links.h"

#include "base/require.h"

namespace gradwire::collective {

PeerLinks::PeerLinks(const ShardConfig& config, const PeerEnds& ends)
    : timeouts_(config.timeouts),
      sender_(config.sender),
      ends_(ends),
      peers_(config.all_ranks()),
      awaited_(config.all_ranks()) {
  for (Peer& peer : peers_) peer.rtt = transport::RttEstimator(config.sender.initial_rtt_ns);
}

void PeerLinks::add(PeerUser& user) noexcept {
  require(user_count_ < kUsersMax, "there is a place for each user of the links");
  users_[user_count_++] = &user;
}

bool PeerLinks::is_awaited(std::uint16_t rank, const PeerUser* but) const noexcept {
  for (std::size_t i = 0; i < user_count_; ++i) {
    if (users_[i] != but && users_[i]->waits_for(rank)) return true;
  }
  return false;
}

void PeerLinks::begin_wait(std::uint16_t rank, const PeerUser& user, TimeNs now) noexcept {
  Peer& peer = peers_[rank];
  if (is_awaited(rank, &user)) {
    require(peer.listed, "whoever is awaited is asked when it is due");
    return;
  }
  peer.heard_at = polled_;
  peer.unanswered = 0;
  peer.at_once = false;
  peer.next_ask = now + first_interval();
  if (peer.listed) return awaited_.may_be_due(peer.next_ask);
  peer.listed = true;
  awaited_.add(rank, peer.next_ask);
}

bool PeerLinks::look(TimeNs now) noexcept {
  if (now < deadline()) return false;
  using Next = Sweep<std::uint16_t>::Seen::Next;
  if (now >= awaited_.next_due()) {
    awaited_.run(now, [&](std::uint16_t rank) -> Sweep<std::uint16_t>::Seen {
      Peer& peer = peers_[rank];
      if (!is_awaited(rank, nullptr)) {
        peer.listed = false;
        return {Next::kGoes};
      }
      if (now >= peer.next_ask) {
        if (!may_ask(now)) {
          doubts_due_ = std::min(doubts_due_, now);
          return {Next::kStops, asks_since_ + timeouts_.ping_interval_ns};
        }
        ask_if_due(rank, now);
      }
      return {Next::kStays, peer.next_ask};
    });
  }
  if (now >= doubts_due_) look_at_doubtful(now);
  return true;
}

void PeerLinks::look_at_doubtful(TimeNs now) noexcept {
  if (may_ask(now)) {  // Another interval has begun: all get their turn.
    doubts_left_ = 0;
    doubts_due_ = kNever;
    return;
  }
  const std::span<const std::uint16_t> awaited = awaited_.items();
  doubts_left_ = doubts_left_ == 0 ? awaited.size() : std::min(doubts_left_, awaited.size());
  for (std::uint32_t looks = 0; doubts_left_ > 0; ++looks) {
    if (looks == Sweep<std::uint16_t>::kLooksInRound) {
      doubts_due_ = now;
      return;
    }
    const std::uint16_t rank = awaited[doubts_left_ - 1];
    if (is_doubtful(rank) && now >= peers_[rank].next_ask && is_awaited(rank, nullptr)) {
      if (doubt_asks_ == kAsksMax) break;
      ++doubt_asks_;
      ask_if_due(rank, now);
    }
    --doubts_left_;
  }
  doubts_due_ = doubts_left_ > 0 ? asks_since_ + timeouts_.ping_interval_ns
                                 : now + timeouts_.silence_ns / (2 * kAsksInLimit);
}

void PeerLinks::ask_if_due(std::uint16_t rank, TimeNs now) noexcept {
  Peer& peer = peers_[rank];
  const TimeNs until = until_late(rank);
  const TimeNs until_first = first_interval() - quiet(rank);
  const TimeNs most = until_first > 0 ? until_first : first_interval();
  peer.next_ask = now + (until > 0 ? std::min(until, most) : timeouts_.silence_ns / kAsksInLimit);
  const bool at_once = std::exchange(peer.at_once, false);
  if (until_first > 0 && !at_once) return;
  const bool silent = is_silent(rank);
  std::size_t asks = user_count_;
  for (std::size_t i = 0; i < user_count_; ++i) {
    const std::size_t user = (peer.turn + i) % user_count_;
    if (!users_[user]->waits_for(rank)) continue;
    if (silent) users_[user]->on_silent(rank, now);
    if (asks == user_count_) asks = user;
  }
  ++asks_;
  peer.turn = static_cast<std::uint8_t>(asks + 1);
  users_[asks]->ask(rank, now);
}

void PeerLinks::ask_at_once(std::uint16_t rank) noexcept {
  Peer& peer = peers_[rank];
  if (!peer.listed) return;
  peer.at_once = true;
  peer.next_ask = 0;
  awaited_.may_be_due(0);
}

std::optional<std::uint16_t> PeerLinks::least_heard(const PeerUser& user) const noexcept {
  std::optional<std::uint16_t> least;
  for (const std::uint16_t rank : awaited_.items()) {
    if (least && quiet(rank) <= quiet(*least)) continue;
    if (user.waits_for(rank)) least = rank;
  }
  return least;
}

TimeNs PeerLinks::repeated_after(std::uint16_t rank, std::uint32_t tries,
                                 TimeNs most) const noexcept {
  const transport::RttEstimator& rtt = peers_[rank].rtt;
  const TimeNs once = rtt.smoothed_ns() + std::max(4 * rtt.variance_ns(), sender_.granularity_ns) +
                      sender_.max_ack_delay_ns;
  const std::uint32_t shift = std::min(tries, kShiftMax);
  return once > most >> shift ? most : once << shift;
}

void PeerLinks::drop_all() noexcept {
  for (const std::uint16_t rank : awaited_.items()) peers_[rank].listed = false;
  awaited_.clear();
  doubts_left_ = 0;
  doubts_due_ = kNever;
  silent_.reset();
}

}  // namespace gradwire::collective
