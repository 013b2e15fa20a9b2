// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The receiving half of a connection: which packet numbers were accepted, and when to acknowledge
/// them. One lane owns it; it allocates nothing; time is a parameter.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.h"
#include "wire/packet.h"

namespace gradwire::transport {

struct ReceiverConfig {
  std::uint32_t ack_every_packets = 16;  ///< acknowledge at the latest after so many
  TimeNs max_ack_delay_ns = 200'000;     ///< and at the latest after this long
};

class Receiver {
 public:
  enum class Verdict : std::uint8_t { kNew, kDuplicate, kTooOld };

  explicit Receiver(const ReceiverConfig& config) : config_(config) {}

  /// Looks, and changes nothing.
  [[nodiscard]] Verdict check(std::uint64_t packet_number) const noexcept;
  /// The packet was accepted for good: it will be acknowledged and must not be dropped any more.
  /// `ecn_ce`: it came with CE. Out-of-order arrival makes an acknowledgement due at once.
  void accept(TimeNs now, std::uint64_t packet_number, bool ecn_ce) noexcept;
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
  /// Number for the next packet that goes up (acknowledgements, hello-acks): a space of its own.
  [[nodiscard]] std::uint64_t next_packet_number() noexcept { return next_packet_number_++; }

  [[nodiscard]] std::uint64_t packets_accepted() const noexcept { return packets_accepted_; }

 private:
  // The implementer completes this part: a bounded, ordered list of ranges; the oldest fall off,
  // and what lies below them is kTooOld.
  ReceiverConfig config_;
  std::uint64_t next_packet_number_ = 1;
  std::uint64_t packets_accepted_ = 0;
};

}  // namespace gradwire::transport
