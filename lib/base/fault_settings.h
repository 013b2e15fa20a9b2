// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Faults that a port injects on purpose, so that loss, duplication, reordering and corruption can
/// be tried on the datapath itself. Plain data: configuration (section [faults]), control socket,
/// lanes and status use the same struct. Any thread; the texts allocate.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace gradwire {

struct FaultSettings {
  static constexpr std::uint32_t kMaxReorderFrames = 64;
  static constexpr std::uint32_t kMaxDelayUs = 60'000'000;

  std::uint64_t seed = 1;  ///< the same seed and the same frames give the same faults
  // Probabilities of each received frame, 0 ... 1.
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;  ///< one bit is flipped
  double delay = 0;
  std::uint32_t reorder_frames = 8;  ///< at most so many later frames overtake a reordered one
  std::uint32_t delay_us = 1'000;    ///< by how much a delayed frame comes late

  /// @return whether any fault can happen.
  [[nodiscard]] bool active() const noexcept {
    return drop > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay > 0;
  }
  friend bool operator==(const FaultSettings&, const FaultSettings&) = default;
};

/// @return an error that names the first value that is out of its bounds.
[[nodiscard]] Result<void> check(const FaultSettings& settings);
/// "drop 0.01, reorder 0.001 by up to 8 frames, seed 7"; "none" if nothing is set.
[[nodiscard]] std::string describe(const FaultSettings& settings);

}  // namespace gradwire
