// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Injects faults between a port's receive queue and the lane, as a bad network would: it drops,
/// duplicates, reorders, corrupts and delays frames, each with a probability, from a seed. A lane
/// without faults does not call it.
///
/// For each frame it draws one random number per kind of fault, always in the same order, so that
/// turning one kind on does not change the others. It holds back at most kHeld frames (further ones
/// pass at once and are counted), and the mempool is sized for that. A copy of a frame comes from
/// the frame's own mempool.
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
  std::uint64_t frames = 0;  ///< received while faults were on
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t delayed = 0;
  std::uint64_t passed_full = 0;  ///< not held back because there was no room
  std::uint64_t no_mbuf = 0;      ///< not copied because there was no mbuf
  std::uint64_t held = 0;         ///< held back now
};

class FaultStage {
 public:
  static constexpr std::size_t kBurst = 32;
  static constexpr std::size_t kHeld = 256;
  /// A reordered frame that no other frame overtakes is delivered after this time; otherwise it
  /// would be lost.
  static constexpr TimeNs kOvertakeNs = 500'000;

  /// @param exclusive  from the driver's row: a received mbuf is not shared.
  /// @param salt  makes the faults of this stage differ from those of others with the same seed.
  FaultStage(bool exclusive, std::uint64_t salt) noexcept : exclusive_(exclusive), salt_(salt) {}
  ~FaultStage() { clear(); }
  FaultStage(const FaultStage&) = delete;
  FaultStage& operator=(const FaultStage&) = delete;

  /// Takes effect from the next frame on. Frames already held stay until they are due.
  void configure(const FaultSettings& settings) noexcept;
  /// @return whether the lane may skip it: no fault is set and no frame is held.
  [[nodiscard]] bool idle() const noexcept { return !active_ && held_count_ == 0; }

  /// @param arrived  at most kBurst frames, which it then owns; may be empty.
  /// @return the frames for the lane, valid until the next call.
  [[nodiscard]] std::span<rte_mbuf* const> pass(std::span<rte_mbuf* const> arrived,
                                                TimeNs now) noexcept;
  /// When the next held frame is due; kNever if there is none.
  [[nodiscard]] TimeNs deadline() const noexcept;
  /// Frees all held frames.
  void clear() noexcept;

  [[nodiscard]] const FaultCounters& counters() const noexcept { return counters_; }

 private:
  struct Held {
    rte_mbuf* frame = nullptr;
    TimeNs due = 0;
    // Delivered when this many more frames have passed; 0 = only at its time.
    std::uint32_t overtakers = 0;
  };

  void release_due(TimeNs now) noexcept;
  void overtaken() noexcept;
  void take(rte_mbuf* frame, TimeNs now) noexcept;
  [[nodiscard]] bool hold(rte_mbuf* frame, TimeNs due, std::uint32_t overtakers) noexcept;
  [[nodiscard]] rte_mbuf* corrupted(rte_mbuf* frame, std::uint64_t random) noexcept;
  void give(rte_mbuf* frame) noexcept { out_[out_count_++] = frame; }
  [[nodiscard]] std::uint64_t draw() noexcept;

  // Probabilities scaled to 2^64: a fault happens if the number drawn is smaller.
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
