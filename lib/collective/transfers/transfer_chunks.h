// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How a transfer's bytes are cut: chunks go round the lanes, and a lane counts its own from 0.
/// Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collective/shapes/partition.h"
#include "collective/shard_config.h"

namespace gradwire::collective {

class TransferChunks {
 public:
  /// The configuration outlives it.
  explicit TransferChunks(const ShardConfig& config) : config_(config) {}

  /// This lane's.
  [[nodiscard]] std::uint32_t count(std::uint64_t bytes) const noexcept {
    const std::uint64_t all = (bytes + config_.payload_bytes - 1) / config_.payload_bytes;
    return static_cast<std::uint32_t>(chunks_on_lane(0, all, config_.lane, config_.lanes));
  }
  /// Where one of these lies.
  [[nodiscard]] std::uint64_t offset_of(std::uint32_t chunk) const noexcept {
    return (std::uint64_t{chunk} * config_.lanes + config_.lane) * config_.payload_bytes;
  }
  /// Its bytes, of a transfer of `bytes`.
  [[nodiscard]] std::uint32_t bytes_of(std::uint32_t chunk, std::uint64_t bytes) const noexcept {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(config_.payload_bytes, bytes - offset_of(chunk)));
  }

 private:
  const ShardConfig& config_;
};

}  // namespace gradwire::collective
