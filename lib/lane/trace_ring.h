// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The last events of ops on one lane: always on, bounded, overwritten from the oldest. The lane
/// writes (a few stores for each event, and a few events for each op); any other thread can copy
/// the events, without a lock. It allocates at construction only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/types.h"
#include "base/wire_format.h"
#include "collective/shapes/shape_kind.h"

namespace gradwire::lane {

enum class TraceType : std::uint8_t {
  kPosted = 0,      ///< value: bytes of the op
  kFirstChunk = 1,  ///< from the upstream rank
  kDone = 2,        ///< value: retransmissions while it was under way
  kAborted = 3,     ///< the group; op_seq comes from the reason, value is its AbortCode
};
[[nodiscard]] const char* name_of(TraceType type) noexcept;

struct TraceEvent {
  TimeNs at = 0;  ///< time of the lane's clock
  std::uint64_t group_handle = 0;
  std::uint64_t op_seq = 0;
  std::uint64_t value = 0;
  TraceType type = TraceType::kPosted;
  std::uint8_t lane = 0;
  std::uint16_t culprit_rank = 0;  ///< kAborted
  std::uint16_t reporter_rank = 0;
  Collective collective = Collective::kAllReduce;  ///< for all but kAborted
  WireFormat wire = WireFormat::kSame;             ///< likewise
  collective::Shape shape{};                       ///< kDone
};

class TraceRing {
 public:
  static constexpr std::size_t kEvents = 4096;  ///< a power of two

  TraceRing() : words_(kEvents * kWords) {}

  /// The lane alone.
  void push(const TraceEvent& event) noexcept {
    std::array<std::uint64_t, kWords> words;
    std::memcpy(words.data(), &event, sizeof event);
    const std::uint64_t index = written_.load(std::memory_order_relaxed);
    // Before the words, so that a reader that sees any word of this event also sees that its place
    // was claimed.
    claimed_.store(index + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    std::atomic<std::uint64_t>* place = &words_[index % kEvents * kWords];
    for (std::size_t i = 0; i < kWords; ++i) place[i].store(words[i], std::memory_order_relaxed);
    written_.store(index + 1, std::memory_order_release);
  }

  /// @return the events, oldest first, without those that were overwritten meanwhile.
  [[nodiscard]] std::vector<TraceEvent> read() const {
    const std::uint64_t end = written_.load(std::memory_order_acquire);
    const std::uint64_t begin = end > kEvents ? end - kEvents : 0;
    std::vector<TraceEvent> events;
    events.reserve(end - begin);
    for (std::uint64_t index = begin; index < end; ++index) {
      std::array<std::uint64_t, kWords> words;
      const std::atomic<std::uint64_t>* place = &words_[index % kEvents * kWords];
      for (std::size_t i = 0; i < kWords; ++i) words[i] = place[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (claimed_.load(std::memory_order_relaxed) > index + kEvents) continue;
      std::memcpy(static_cast<void*>(&events.emplace_back()), words.data(), sizeof(TraceEvent));
    }
    return events;
  }
  /// How many were pushed in all.
  [[nodiscard]] std::uint64_t count() const noexcept {
    return written_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kWords = sizeof(TraceEvent) / sizeof(std::uint64_t);
  static_assert(sizeof(TraceEvent) % sizeof(std::uint64_t) == 0);
  std::atomic<std::uint64_t> claimed_{0};
  std::atomic<std::uint64_t> written_{0};
  std::vector<std::atomic<std::uint64_t>> words_;
};

}  // namespace gradwire::lane
