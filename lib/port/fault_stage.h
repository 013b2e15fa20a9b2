// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Stands between a port's receive queue and the lane, and does to frames what a bad network does:
/// it drops, duplicates, reorders, corrupts and delays them, each with a probability, from a seed.
/// A lane without faults never enters it.
///
/// Each frame draws one number for each kind, in the same order whatever is set, so that turning
/// one kind on does not move the others. What is held back is bounded (kHeld frames; more pass at
/// once and are counted), and the mempool is sized for it. A copy that is made of a frame comes
/// from the frame's own mempool.
///
/// One lane owns it; only the counters may be read by others. It allocates mbufs only.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <span>

#include "base/fault_settings.h"
#include "base/types.h"

namespace gradwire::port {

/// Written by the lane; read with read_counter().
struct alignas(64) FaultCounters {
  std::uint64_t frames = 0;  ///< that came in while faults were on
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t delayed = 0;
  std::uint64_t passed_full = 0;  ///< were to be held back, and there was no room
  std::uint64_t no_mbuf = 0;      ///< were to be copied, and there was no mbuf
  std::uint64_t held = 0;         ///< held back now
};

class FaultStage {
 public:
  static constexpr std::size_t kBurst = 32;
  static constexpr std::size_t kHeld = 256;
  /// A reordered frame that nobody overtakes goes on after so long: it would be lost otherwise.
  static constexpr TimeNs kOvertakeNs = 500'000;

  /// @param exclusive  the driver's row: a received mbuf is nobody else's.
  /// @param salt  what tells this stage's faults from those of others with the same seed.
  FaultStage(bool exclusive, std::uint64_t salt) noexcept : exclusive_(exclusive), salt_(salt) {}
  ~FaultStage() { clear(); }
  FaultStage(const FaultStage&) = delete;
  FaultStage& operator=(const FaultStage&) = delete;

  /// From the next frame on. What is held stays until it is due.
  void configure(const FaultSettings& settings) noexcept;
  /// @return whether it may be left out: nothing is set, and nothing held.
  [[nodiscard]] bool idle() const noexcept { return !active_ && held_count_ == 0; }

  /// @param arrived  at most kBurst frames, which it owns from then on; none at all is fine.
  /// @return what the lane gets, valid until the next call.
  [[nodiscard]] std::span<rte_mbuf* const> pass(std::span<rte_mbuf* const> arrived,
                                                TimeNs now) noexcept;
  /// When the next frame that is held is due; kNever if none is.
  [[nodiscard]] TimeNs deadline() const noexcept;
  /// Frees what is held.
  void clear() noexcept;

  [[nodiscard]] const FaultCounters& counters() const noexcept { return counters_; }

 private:
  struct Held {
    rte_mbuf* frame = nullptr;
    TimeNs due = 0;
    std::uint32_t overtakers = 0;  // goes on when so many more frames have passed; 0 = only by time
  };

  void release_due(TimeNs now) noexcept;
  void overtaken() noexcept;
  void take(rte_mbuf* frame, TimeNs now) noexcept;
  [[nodiscard]] bool hold(rte_mbuf* frame, TimeNs due, std::uint32_t overtakers) noexcept;
  [[nodiscard]] rte_mbuf* corrupted(rte_mbuf* frame, std::uint64_t random) noexcept;
  void give(rte_mbuf* frame) noexcept { out_[out_count_++] = frame; }
  [[nodiscard]] std::uint64_t draw() noexcept;

  // Probabilities as shares of 2^64; what is drawn below is hit.
  std::uint64_t drop_ = 0;
  std::uint64_t duplicate_ = 0;
  std::uint64_t reorder_ = 0;
  std::uint64_t corrupt_ = 0;
  std::uint64_t delay_ = 0;
  std::uint32_t reorder_frames_ = 1;
  TimeNs delay_ns_ = 0;
  bool active_ = false;
  bool exclusive_;
  std::uint64_t salt_;
  std::uint64_t state_ = 0;

  std::array<Held, kHeld> held_{};  // the first held_count_, in order of arrival
  std::size_t held_count_ = 0;
  // Every frame of a burst, its copy, and all that was held.
  std::array<rte_mbuf*, 2 * kBurst + kHeld> out_{};
  std::size_t out_count_ = 0;
  FaultCounters counters_;
};

}  // namespace gradwire::port
