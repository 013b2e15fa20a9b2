// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a lane knows of a pair of processes at the source's rank and at the destination's:
/// doc/protocol/transfers.md (Transfers) says who has to do what. Chunks are this lane's, counted
/// from 0; sets of them are bits from `first` on. One lane owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// The next packet about a pair, and when it is due.
struct PairTimer {
  TimeNs due = kNever;
  std::uint32_t tries = 0;  ///< repetitions without anything new
  bool queued = false;      ///< it has something to send
  bool watched = false;     ///< it may have something due
};

/// A transfer under way among all of the lane, in the order in which they were posted. Each is
/// named by twice the index of its pair, and 1 more if it comes in.
struct PairOrder {
  static constexpr std::uint32_t kNobody = UINT32_MAX;

  TimeNs posted_at = 0;
  TimeNs moved_at = 0;  ///< of its bytes something went or came; 0: never
  std::uint32_t older = kNobody;
  std::uint32_t newer = kNobody;
};

struct OutPair {
  wire::ProcessPair pair;
  std::uint16_t rank = 0;  ///< of the destination
  bool active = false;     ///< the transfer is posted and not done
  bool heard = false;      ///< the other rank has heard of the transfer
  bool offered = false;    ///< a packet about the transfer was sent
  bool offer_wanted = false;
  bool asks = false;     ///< the wanted offer does
  bool sending = false;  ///< it is queued to send pieces
  std::uint64_t sequence = 0;
  std::uint64_t id = 0;
  const std::byte* from = nullptr;
  wire::TransferTerms terms;
  std::uint32_t chunks = 0;
  std::uint32_t first = 0;        ///< all below it have come there
  std::uint64_t wanted = 0;       ///< to be sent
  std::uint32_t first_offer = 0;  ///< low half of the number of its first packet, if offered
  bool posted_there = false;      ///< the destination said so
  PairOrder order;
  PairTimer timer;
};

struct InPair {
  static constexpr std::uint32_t kAhead = 2;
  static constexpr std::uint16_t kNoPlace = UINT16_MAX;

  wire::ProcessPair pair;
  std::uint16_t rank = 0;  ///< of the source
  bool active = false;     ///< the transfer is posted and not done
  bool ready = false;      ///< it is posted at both ends, and waits for its turn or has it
  bool admitted = false;   ///< it has its turn
  bool in_line = false;    ///< it, or an earlier transfer of the pair, stands in line for one
  bool pull_wanted = false;
  bool asks = false;  ///< the wanted pull does
  std::uint64_t sequence = 0;
  std::uint64_t id = 0;
  std::byte* to = nullptr;
  wire::TransferTerms terms;
  bool up_to = false;  ///< `terms` have the most bytes that it takes: the source has not said more
  std::uint32_t chunks = 0;
  std::uint32_t first = 0;    ///< all below it have come
  std::uint32_t next = 0;     ///< the first that was never pulled
  std::uint64_t have = 0;     ///< have come
  std::uint64_t asked = 0;    ///< were pulled and have not come
  std::uint64_t to_pull = 0;  ///< of these, those to be named in the next pull
  std::uint32_t echo = 0;     ///< of the offer that the next pull answers
  TimeNs pulled_again_at = 0;
  std::uint32_t timed_chunk = 0;  ///< its arrival tells the round-trip time, if `timed`
  bool timed = false;
  TimeNs timed_at = 0;
  // What the source said.
  std::uint64_t offered = 0;  ///< the last transfer that is posted there
  wire::TransferTerms offered_terms;
  std::uint64_t confirmed = 0;  ///< up to this one they are done there
  std::uint64_t owed = 0;       ///< the last that has come whole, of which the source must know
  std::array<std::uint16_t, kAhead> places{kNoPlace, kNoPlace};  ///< of pieces that came ahead
  TimeNs waits_since = 0;  ///< polled time at which chunks were pulled while none was, or one came
  PairOrder order;
  PairTimer timer;

  /// Whether what its source called is what was called here.
  [[nodiscard]] bool takes(const wire::TransferTerms& sent) const noexcept {
    wire::TransferTerms wanted = terms;
    if (up_to && sent.bytes < terms.bytes) wanted.bytes = sent.bytes;
    return sent == wanted;
  }
  [[nodiscard]] bool complete() const noexcept { return !active && sequence != 0; }
};

}  // namespace gradwire::collective
