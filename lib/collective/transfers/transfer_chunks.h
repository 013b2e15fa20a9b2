// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How a transfer's bytes are cut: of stream 0 chunks go round the lanes, and a lane counts its own
/// from 0; another stream has one lane.
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

  /// The lane that takes part in every transfer of a stream: of stream 0 the first of all, of
  /// another the only one.
  [[nodiscard]] static std::uint8_t first_lane(const wire::ProcessPair& pair,
                                               std::uint8_t lanes) noexcept {
    if (pair.stream == 0) return 0;
    return static_cast<std::uint8_t>((std::uint32_t{pair.source} + pair.destination + pair.stream) %
                                     lanes);
  }
  [[nodiscard]] bool is_first_lane(const wire::ProcessPair& pair) const noexcept {
    return config_.lane == first_lane(pair, config_.lanes);
  }
  /// Whether this lane has a part in the stream at all.
  [[nodiscard]] bool has(const wire::ProcessPair& pair) const noexcept {
    return pair.stream == 0 || (pair.stream < config_.transfers.streams && is_first_lane(pair));
  }
  /// This lane's, of a stream that it has.
  [[nodiscard]] std::uint32_t count(const wire::ProcessPair& pair,
                                    std::uint64_t bytes) const noexcept {
    const std::uint64_t all = (bytes + config_.payload_bytes - 1) / config_.payload_bytes;
    if (pair.stream != 0) return static_cast<std::uint32_t>(all);
    return static_cast<std::uint32_t>(chunks_on_lane(0, all, config_.lane, config_.lanes));
  }
  /// Where one of these lies.
  [[nodiscard]] std::uint64_t offset_of(const wire::ProcessPair& pair,
                                        std::uint32_t chunk) const noexcept {
    if (pair.stream != 0) return std::uint64_t{chunk} * config_.payload_bytes;
    return (std::uint64_t{chunk} * config_.lanes + config_.lane) * config_.payload_bytes;
  }
  /// Its bytes, of a transfer of `bytes`.
  [[nodiscard]] std::uint32_t bytes_of(const wire::ProcessPair& pair, std::uint32_t chunk,
                                       std::uint64_t bytes) const noexcept {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(config_.payload_bytes, bytes - offset_of(pair, chunk)));
  }

 private:
  const ShardConfig& config_;
};

}  // namespace gradwire::collective
