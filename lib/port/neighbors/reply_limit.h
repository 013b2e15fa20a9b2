// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Limits answers to unknown senders: a burst first, then a fixed rate, over all senders together.
/// A host that answers every ping and every ARP request can be misused as a reflector, by requests
/// that carry a victim's address. One thread owns a limit; time is a parameter; nothing allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/rate_meter.h"
#include "base/sip_hash.h"
#include "base/types.h"

namespace gradwire::port {

class ReplyLimit {
 public:
  /// Enough for an operator's `ping -i 0.01`, and for all hosts of a network that resolve an
  /// address at once.
  static constexpr std::uint32_t kBurst = 64;
  static constexpr TimeNs kIntervalNs = 1'000'000;

  explicit ReplyLimit(TimeNs interval_ns = kIntervalNs) noexcept : meter_(interval_ns, kBurst) {}

  /// @return whether one more may be sent now; if so, it counts.
  [[nodiscard]] bool allow(TimeNs now) noexcept { return meter_.allow(now); }

 private:
  RateMeter meter_;
};

/// A limit for each sender, so that one that floods does not drown the others; the number of limits
/// is fixed, so some senders share one, and all senders together are bounded. Which senders share a
/// limit depends on a secret, so that nobody can choose an address that shares a neighbor's limit.
class SenderLimit {
 public:
  static constexpr std::size_t kSenders = 32;

  explicit SenderLimit(const SipHashKey& secret) noexcept : secret_(secret) {}

  /// @param sender  what tells it from others.
  [[nodiscard]] bool allow(std::span<const std::byte> sender, TimeNs now) noexcept {
    return limits_[place_of(sender)].allow(now);
  }
  [[nodiscard]] std::size_t place_of(std::span<const std::byte> sender) const noexcept {
    return sip_hash(secret_, sender) % kSenders;
  }

 private:
  SipHashKey secret_;
  std::array<ReplyLimit, kSenders> limits_;
};

}  // namespace gradwire::port
