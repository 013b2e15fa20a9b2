// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What two ranks know of each other in one op by tiles on one lane. A rank pulls chunks from
/// another (TileIn): as an owner its parts, as a puller its results. And it is pulled from
/// (TileOut): as a source, and as an owner. Plain data; one lane owns it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"
#include "collective/tiles/chunk_set.h"

namespace gradwire::collective {

/// Chunks that come from a rank, by their numbers.
struct TileIn {
  std::uint32_t end = 0;      ///< so many are to come; 0: nothing
  std::uint32_t ready = 0;    ///< below it they may be pulled
  std::uint32_t first = 0;    ///< below it all have come
  std::uint32_t next = 0;     ///< below it all were pulled, or have come
  std::uint32_t granted = 0;  ///< below it any may come, since it was pulled once
  std::uint32_t on_way = 0;   ///< pulled, and not come
  std::uint32_t whole = 0;    ///< below it no tile lacks a number
  ChunkSet have;              ///< bit i: chunk first + i has come
  ChunkSet asked;             ///< bit i: it is on its way
  ChunkSet again;             ///< bit i: the next pull says that it is to be sent again
  ChunkSet repaired;          ///< bit i: it was pulled again since pulled_again_at
  std::uint32_t echo = 0;     ///< low half of the number of the call that the next word answers
  bool word_wanted = false;   ///< a tile pull is to go there
  bool asks = false;          ///< it wants an answer at once
  bool in_line = false;       ///< it waits for room to pull
  bool late = false;          ///< the rank said that it has not entered the op
  bool began = false;         ///< something of the op came from there
  bool timed = false;         ///< the chunk below tells the round-trip time when it comes
  std::uint32_t timed_chunk = 0;
  TimeNs timed_at = 0;
  TimeNs pulled_again_at = 0;
  TimeNs waits_since = 0;  ///< in polled time, that nothing came of what was pulled

  [[nodiscard]] bool complete() const noexcept { return first == end; }
  /// Below it chunks may be pulled: `ready`, or what the sets here have room for. No number beyond
  /// the last one is computed.
  [[nodiscard]] std::uint32_t reach() const noexcept {
    return first + std::min(ready - first, ChunkSet::kChunks);
  }
  /// Chunks that may be pulled now.
  /// @param most  that may be on their way from there.
  [[nodiscard]] std::uint32_t open(std::uint32_t most) const noexcept {
    if (late || on_way >= most) return 0;
    const std::uint32_t until = reach();
    return until > next ? std::min(until - next, most - on_way) : 0;
  }
  /// What has come without a gap is no longer told chunk by chunk.
  void settle() noexcept {
    const std::uint32_t leading = have.leading();
    first += leading;
    have.shift(leading);
    asked.shift(leading);
    // Mostly nothing is lost.
    if (!again.empty()) again.shift(leading);
    if (!repaired.empty()) repaired.shift(leading);
    next = std::max(next, first);
  }
  /// Whether the place is used anew: where it waits in a list stays true.
  /// @param whole_chunks  as TileCut::whole_chunks(), or less.
  void begin(std::uint32_t chunks, std::uint32_t whole_chunks = 0) noexcept {
    const bool waits = in_line;
    *this = TileIn{};
    in_line = waits;
    end = chunks;
    whole = whole_chunks;
  }
};

/// Whether an owner without members is told of an op, which it does not know otherwise.
enum class TileOffer : std::uint8_t {
  kNone,   ///< it knows of it, or needs not be told
  kWaits,  ///< it will be, when it knows of ops before
  kSaid,   ///< a tile call goes there until it has entered the op
};

/// Chunks that go to a rank, by their numbers.
struct TileOut {
  std::uint32_t end = 0;     ///< so many are to go; 0: nothing
  std::uint32_t first = 0;   ///< below it the rank has all, as it says
  std::uint32_t next = 0;    ///< below it all were sent once
  std::uint32_t grant = 0;   ///< below it all may be sent
  std::uint32_t whole = 0;   ///< below it no tile lacks a number
  ChunkSet wanted;           ///< bit i: chunk first + i is to be sent again
  std::uint32_t told = 0;    ///< of an owner: tiles that the rank was told to be done
  bool sending = false;      ///< it waits in a list for its turn to send
  bool has_all = false;      ///< of an owner: the rank said that it has all
  bool call_owed = false;    ///< of a source: the rank asked before this one had entered
  bool call_wanted = false;  ///< of a source: a tile call is to go there
  bool call_asks = false;
  bool called = false;           ///< one went
  TileOffer offer{};             ///< of a source
  std::uint8_t since = 0;        ///< what a call to a rank without members says
  std::uint32_t first_call = 0;  ///< low half of its number
  std::uint32_t call_echo = 0;   ///< low half of the number of the pull that it answers

  [[nodiscard]] bool has_to_send() const noexcept { return next < grant || !wanted.empty(); }
  /// @param whole_chunks  as TileCut::whole_chunks(), or less.
  void begin(std::uint32_t chunks, std::uint32_t whole_chunks = 0) noexcept {
    const bool waits = sending;
    *this = TileOut{};
    sending = waits;
    end = chunks;
    whole = whole_chunks;
  }
};

/// What is known of a rank, whatever the op.
struct TilePeer {
  bool queued = false;   ///< it waits for a word
  bool watched = false;  ///< something may be due there
  TimeNs due = 0;        ///< if watched: when
  std::uint32_t tries = 0;
  std::uint64_t asked_early = 0;  ///< the last op of which it asked before that had entered here
  // "Not entered": of which op it is to be said, and which pull it answers.
  std::uint64_t not_entered = 0;
  std::uint32_t not_entered_echo = 0;
  /// The op of which it is to be told what was called here, since that went another way; 0: none.
  std::uint64_t other_call = 0;
  std::uint32_t other_call_echo = 0;
  // As a puller or source of it: "all" of the ops up to that one, and up to which it knows that.
  std::uint64_t all = 0;
  std::uint64_t all_known = 0;
  bool all_wanted = false;
  bool all_asks = false;
  // As its owner: up to which op it said "all", and an op of which it asks whether that is known.
  std::uint64_t has_all = 0;
  std::uint64_t over_wanted = 0;
};

}  // namespace gradwire::collective
