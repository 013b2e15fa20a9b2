// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How many answers strangers get: a burst, and on from there so many a second, whoever asks. A
/// host that answers every ping and every ARP request is a mirror: whoever sends under another's
/// address sends to that one through it. One thread owns a limit; time is a parameter; nothing
/// allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/sip_hash.h"
#include "base/types.h"

namespace gradwire::port {

class ReplyLimit {
 public:
  /// More than an operator's `ping -i 0.01`, or a network's worth of hosts that look for an
  /// address.
  static constexpr std::uint32_t kBurst = 64;
  static constexpr TimeNs kIntervalNs = 1'000'000;

  /// @return whether one more may be sent now; if so, it counts.
  [[nodiscard]] bool allow(TimeNs now) noexcept {
    if (next_ > now + (kBurst - 1) * kIntervalNs) return false;
    next_ = std::max(next_, now) + kIntervalNs;
    return true;
  }

 private:
  TimeNs next_ = 0;  ///< when the next would be due if there were no bursts
};

/// So much for each sender, as well as few bytes can tell senders apart: one that floods does not
/// keep the others from being heard, and all of them together are bounded. Which of them share a
/// limit depends on a secret, so that nobody can choose an address that shares a neighbour's.
class SenderLimit {
 public:
  static constexpr std::size_t kSenders = 32;

  explicit SenderLimit(const SipHashKey& secret) noexcept : secret_(secret) {}

  [[nodiscard]] bool allow(std::uint32_t sender, TimeNs now) noexcept {
    return limits_[place_of(sender)].allow(now);
  }
  [[nodiscard]] std::size_t place_of(std::uint32_t sender) const noexcept {
    return sip_hash(secret_, std::as_bytes(std::span(&sender, 1))) % kSenders;
  }

 private:
  SipHashKey secret_;
  std::array<ReplyLimit, kSenders> limits_;
};

}  // namespace gradwire::port
