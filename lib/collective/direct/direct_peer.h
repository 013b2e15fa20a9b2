// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Another rank, for direct ops: what it says it has, and what must be sent to it. One lane owns
/// it.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace gradwire::collective {

struct DirectPeer {
  /// How many contributions to ops that are not posted there may be on their way.
  static constexpr std::uint32_t kFloor = 2;

  // What it said.
  std::uint64_t entered = 0;   ///< as wire::Receipt
  std::uint64_t received = 0;  ///< likewise
  std::uint64_t chunks = 0;    ///< of the first op above `received`
  std::uint32_t ahead = 0;     ///< chunks sent of ops above `entered`
  std::uint64_t told = 0;      ///< up to which op it was told that this rank has entered

  // What came from there.
  std::uint64_t newest = 0;  ///< number of a contribution or an inquiry
  TimeNs newest_at = 0;
  std::uint32_t vain_answers = 0;  ///< to inquiries, none of which said anything new
  TimeNs news_at = 0;  ///< polled: it acknowledged something new, or something new went there

  // What is due.
  TimeNs receipt_due = kNever;
  TimeNs quiet_since = 0;            ///< nothing was sent there, and nothing new came
  std::uint64_t inquiry = 0;         ///< number of the last, until it is answered
  std::uint32_t tries = 0;           ///< inquiries without an answer that was new
  std::uint32_t lost_inquiries = 0;  ///< sent while the one before had no answer
  bool receipt_wanted = false;
  bool answers = false;  ///< the wanted receipt does
  bool inquiry_wanted = false;
  bool queued = false;   ///< it has something to send
  bool watched = false;  ///< it may have something due

  /// It said something new: what was asked before was not in vain.
  void has_news(TimeNs polled) noexcept {
    tries = 0;
    vain_answers = 0;
    news_at = polled;
  }
};

}  // namespace gradwire::collective
