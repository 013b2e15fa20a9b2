// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the host has a GPU do: a batch of folds and copies over scattered memory, as plain data. It
/// is small enough to be a kernel's parameter, and lies in registered memory if a persistent kernel
/// fetches it. The emulated device takes the same batches.
///
/// CUDA's compiler takes this header too. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace gradwire::reduce {

/// Which arrays of an item of 16-bit elements hold fp32.
enum class Wide : std::uint8_t { kNothing, kSources, kTargets };

/// One fold: target[t][i] = round(source[0][i] op source[1][i] ... / divisor), or, with `copies`, a
/// copy of bits. avg has become sum and a divisor. With `crc` the parts of a CRC32C come beside it,
/// kCrcWordsPerTile for each tile.
struct BatchItem {
  std::uint32_t count = 0;       ///< elements; of a copy bytes
  std::uint32_t bytes = 0;       ///< of a target, and of a source if `wide` does not say otherwise
  std::uint32_t first_tile = 0;  ///< tiles of the items before this one
  std::uint32_t divisor = 1;     ///< 1 = no division
  std::uint16_t first_address = 0;  ///< in Batch::addresses: the sources, the targets, the factors
                                    ///< as the bits of fp64, with `crc` its words
  std::uint16_t source_count = 1;
  std::uint8_t target_count = 1;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  std::uint8_t copies = 0;
  std::uint8_t alignment = 1;  ///< that all its addresses have: 16, the element's width, or 1
  std::uint8_t crc = 0;
  std::uint8_t general = 0;  ///< by general_fold.h, which alone heeds the two below
  std::uint8_t settles = 0;  ///< rounds after each source
  Wide wide = Wide::kNothing;
  std::uint8_t factors = 0;  ///< so many of its first sources are multiplied, by general_fold.h
  std::uint16_t crc_of = 0;  ///< which of its addresses the CRC is of
};
static_assert(sizeof(BatchItem) == 32);

/// The work of one item is cut into tiles of so many bytes of a target, or of a source if there is
/// none; a block of threads takes a tile at a time.
inline constexpr std::uint32_t kTileBytes = 4096;
inline constexpr std::uint32_t kThreadsPerBlock = 128;
/// One CRC word for each warp, so that no two warps write the same word.
inline constexpr std::uint32_t kThreadsPerWarp = 32;
inline constexpr std::uint32_t kCrcWordsPerTile = kThreadsPerBlock / kThreadsPerWarp;

struct alignas(16) Batch {
  static constexpr std::size_t kItems = 32;
  static constexpr std::size_t kAddresses = 372;
  /// Of one item: with all its targets it fits an empty batch.
  static constexpr std::uint32_t kSourcesMax = 256;

  std::uint32_t item_count = 0;
  std::uint32_t tile_count = 0;
  /// Whether all folds have the same datatype and redop as the first item that is no copy.
  std::uint8_t uniform = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  std::uint8_t reserved = 0;
  std::uint32_t address_count = 0;
  BatchItem items[kItems];
  std::uint64_t addresses[kAddresses];
};
static_assert(sizeof(Batch) <= 4096 - 64, "a kernel's parameters are at most 4 KiB on every GPU");

/// Batches of a queue that a GPU may have at once.
inline constexpr std::uint32_t kQueueSlots = 16;

/// The words by which host and GPU notify each other, in registered host memory. Each writer has
/// cache lines of its own. The host fills a slot's batch, then releases its doorbell; the GPU
/// acquires it, works, and after a system fence releases `done` with the same number, or with
/// kFailed set in it.
struct QueueWords {
  static constexpr std::uint32_t kFailed = 0x80000000u;

  /// Host: number of the slot's batch, from 1, and in the low half its tiles, by which a block of a
  /// persistent kernel knows whether there is one for it. A doorbell and `stop` are as wide, so
  /// that one read takes them all.
  alignas(64) std::uint64_t doorbell[kQueueSlots];
  alignas(64) std::uint32_t done[kQueueSlots];  ///< GPU
  alignas(64) std::uint64_t stop;               ///< host: the kernel is to end when it has no work
  alignas(64) std::uint32_t parked;             ///< GPU: number of the last run that has ended

  [[nodiscard]] static constexpr std::uint64_t bell(std::uint32_t number,
                                                    std::uint32_t tiles) noexcept {
    return std::uint64_t{number} << 32 | tiles;
  }
  [[nodiscard]] static constexpr std::uint32_t number_of(std::uint64_t bell) noexcept {
    return static_cast<std::uint32_t>(bell >> 32);
  }
};

}  // namespace gradwire::reduce
