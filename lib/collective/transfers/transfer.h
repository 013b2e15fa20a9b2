// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One end of a transfer between two processes, as the lane posts it. Plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::collective {

enum class TransferEnd : std::uint8_t { kSource, kDestination };

/// The same on every lane of the rank, and of a pair's transfers in the same order on each.
struct TransferSpec {
  std::uint64_t id = 0;  ///< the caller's name of it, which its done event has
  TransferEnd end = TransferEnd::kSource;
  wire::ProcessPair pair;
  wire::TransferTerms terms;
  /// Of a receive: `terms` have the most bytes that it takes, and the source says how many come. It
  /// is posted on lane 0 alone, until that lane tells the size (EventType::kTransferSized). Then it
  /// is posted on the others as one of that size.
  bool up_to = false;
  /// [bytes], of the end that this is. It stays valid until the done event of this shard, or until
  /// the shard is closed; what is sent is not changed until then.
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
};

/// The one of a rank's transfers under way that was posted first, for people.
struct TransferWait {
  std::uint32_t unfinished = 0;  ///< ends of transfers here. 0: there is none, and no more is said
  TransferEnd end = TransferEnd::kSource;  ///< which one is here
  bool posted_there = false;               ///< the other end is known to be posted
  std::uint16_t rank = 0;                  ///< of the other end
  wire::ProcessPair pair;
  std::uint64_t sequence = 0;
  wire::TransferTerms terms;
  bool up_to = false;  ///< a receive of at most so many bytes, of which nothing was offered yet
  TimeNs posted_at = 0;
  TimeNs moved_at = 0;                ///< of its bytes something went or came; 0: never
  TimeNs rank_silent_ns = 0;          ///< polled time; 0 if the other end is here
  std::uint32_t rank_unanswered = 0;  ///< asks that went there in this time
  wire::IpAddress rank_ip;  ///< where this rank sends to it now, if the other end is not here
};

}  // namespace gradwire::collective
