// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The receiving half of a link: which packet numbers were accepted, and when to acknowledge
/// them. One lane owns it; it allocates nothing; time is a parameter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/require.h"
#include "base/types.h"
#include "wire/packet.h"

namespace gradwire::transport {

struct ReceiverConfig {
  std::uint32_t ack_every_packets = 16;  ///< acknowledge at the latest after so many
  TimeNs max_ack_delay_ns = 200'000;     ///< and at the latest after this long
  /// How far behind the newest packet number holes are reported: farther back the sender has
  /// forgotten what it sent, and a hole is never filled, since each packet has a number of its own.
  std::uint64_t reported_numbers = std::numeric_limits<std::uint64_t>::max();
  friend bool operator==(const ReceiverConfig&, const ReceiverConfig&) = default;
};

class Receiver {
 public:
  enum class Verdict : std::uint8_t { kNew, kDuplicate, kTooOld };

  explicit Receiver(const ReceiverConfig& config) : config_(config) {}

  /// Looks, and changes nothing.
  [[nodiscard]] Verdict check(std::uint64_t packet_number) const noexcept {
    return is_newest(packet_number) ? Verdict::kNew : check_older(packet_number);
  }
  /// Whether it is larger than every number that was received before, and one was.
  [[nodiscard]] bool is_newest(std::uint64_t packet_number) const noexcept {
    return range_count_ != 0 && packet_number > ranges_[range_count_ - 1].last;
  }
  /// A packet came that wants no acknowledgement: its number counts as received, and nothing is
  /// due.
  void note(std::uint64_t packet_number) noexcept;
  /// The packet was accepted for good: it will be acknowledged and must not be dropped any more.
  /// `ecn_ce`: it came with CE. Out-of-order arrival makes an acknowledgement due at once.
  void accept(TimeNs now, std::uint64_t packet_number, bool ecn_ce) noexcept {
    accept_all(now, {packet_number, packet_number}, ecn_ce);
  }
  /// The same of all packets of a range, which came one after the other.
  void accept_all(TimeNs now, const wire::AckRange& numbers, bool ecn_ce) noexcept;
  /// A duplicate came: its acknowledgement may have been lost, so one is due at once.
  void on_duplicate(TimeNs now) noexcept;
  /// Limits changed, or somebody probed: acknowledge with the next chance.
  void request_ack() noexcept;

  /// @return whether an acknowledgement should go now. `idle`: the burst that brought the packets
  /// was the last for now, so nothing is gained by waiting.
  [[nodiscard]] bool ack_due(TimeNs now, bool idle) const noexcept;
  [[nodiscard]] TimeNs deadline() const noexcept;
  /// Fills ranges, delay and ECN count (credit is the caller's), and takes the acknowledgement as
  /// sent.
  void write_ack(TimeNs now, wire::AckHeader& out) noexcept;
  /// Those alone that want an acknowledgement.
  [[nodiscard]] std::uint64_t packets_accepted() const noexcept { return packets_accepted_; }

 private:
  /// More ranges than one acknowledgement reports: holes that are older than the newest
  /// kMaxAckRanges are still told apart from duplicates.
  static constexpr std::size_t kMaxRanges = 256;
  static constexpr std::uint64_t kMostAtOnce = 4096;  ///< packets of a burst: far more than any has

  [[nodiscard]] Verdict check_older(std::uint64_t packet_number) const noexcept;
  void insert(const wire::AckRange& numbers) noexcept;
  void insert(std::uint64_t packet_number) noexcept;
  void drop_oldest_range() noexcept;
  [[nodiscard]] std::size_t first_range_reaching(std::uint64_t packet_number) const noexcept;
  void want_ack_by(TimeNs time) noexcept;

  ReceiverConfig config_;
  std::uint64_t packets_accepted_ = 0;

  /// [0, range_count_) ascending, disjoint, not adjacent. Only the newest grows without a hole, and
  /// it is the last, so that in-order arrival touches one entry.
  std::array<wire::AckRange, kMaxRanges> ranges_{};
  std::size_t range_count_ = 0;
  std::uint64_t floor_ = 0;  ///< below it nobody knows any more what arrived

  std::uint64_t largest_ = 0;           ///< numbers start at 1
  std::uint64_t largest_accepted_ = 0;  ///< of those that want an acknowledgement
  TimeNs largest_arrived_at_ = 0;       ///< when that one came
  TimeNs last_event_at_ = 0;
  TimeNs ack_deadline_ = kNever;
  std::uint32_t unacknowledged_packets_ = 0;
  std::uint32_t ecn_ce_count_ = 0;
  bool ack_now_ = false;
};

/// What a burst accepts, of which a receiver hears at once: numbers mostly follow each other, and
/// are larger than all before. It knows them from accept() on; the receiver does from tell() on,
/// which comes before anything else is asked of the receiver.
class AcceptedRun {
 public:
  AcceptedRun(Receiver& receiver, bool ecn_ce) noexcept : receiver_(receiver), ecn_ce_(ecn_ce) {}

  [[nodiscard]] Receiver::Verdict check(TimeNs now, std::uint64_t packet_number) noexcept {
    // None of those that follow the newest has come before.
    if (newest_ && any_ && packet_number > numbers_.last && packet_number - numbers_.last == 1) {
      return Receiver::Verdict::kNew;
    }
    tell(now);
    return receiver_.check(packet_number);
  }
  /// check() has just called it new.
  void accept(std::uint64_t packet_number) noexcept {
    require_dear([&] { return !any_ || packet_number == numbers_.last + 1; },
                 "a run's packets follow each other");
    if (!any_) {
      numbers_.first = packet_number;
      newest_ = receiver_.is_newest(packet_number);
    }
    numbers_.last = packet_number;
    any_ = true;
  }
  void tell(TimeNs now) noexcept {
    if (any_) receiver_.accept_all(now, numbers_, ecn_ce_);
    any_ = false;
  }

 private:
  Receiver& receiver_;
  wire::AckRange numbers_{};
  bool any_ = false;
  bool newest_ = false;  ///< numbers_.first was
  bool ecn_ce_;
};

}  // namespace gradwire::transport
