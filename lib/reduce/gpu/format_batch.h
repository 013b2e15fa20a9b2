// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the host has a GPU do with wire formats: parts, results and decodings over scattered
/// memory, as plain data, small enough to be a kernel's parameter. format_append.h fills it.
///
/// CUDA's compiler takes this header too. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "base/wire_format.h"
#include "reduce/gpu/batch.h"

namespace gradwire::reduce {

enum class FormatWork : std::uint8_t {
  kPart,    ///< as FormatCodec::make_part()
  kResult,  ///< as FormatCodec::make_result()
  kDecode,  ///< as FormatCodec::decode()
};

/// Addresses: the sources (members, or what travels), then the four of FormatAddress, 0 for what is
/// not there. They need no alignment.
struct FormatItem {
  std::uint32_t count = 0;       ///< elements
  std::uint32_t first_tile = 0;  ///< tiles of the items before this one
  std::uint32_t divisor = 1;     ///< of a result; 1 = no division
  std::uint16_t first_address = 0;
  std::uint16_t source_count = 0;
  WireFormat format = WireFormat::kSame;
  DataType datatype = DataType::kFloat32;
  FormatWork work = FormatWork::kPart;
  std::uint8_t reserved = 0;
};
static_assert(sizeof(FormatItem) == 20);

/// Behind an item's sources.
enum FormatAddress : std::uint32_t {
  kToWire,
  kToStored,
  kFromFloats,  ///< residual_in of a part, `sum` of a result
  kToResidual,
  kFormatAddresses,
};

/// A warp takes a block of the format, a block of threads a tile.
inline constexpr std::uint32_t kFormatBlocksPerTile = kThreadsPerBlock / kThreadsPerWarp;
/// Elements of a block that a thread has.
inline constexpr std::uint32_t kFormatElementsEach = kFormatBlock / kThreadsPerWarp;

struct alignas(16) FormatBatch {
  static constexpr std::size_t kItems = 32;
  static constexpr std::size_t kAddresses = 420;
  /// Elements of an item at most.
  static constexpr std::size_t kElementsMax = std::size_t{1} << 30;

  std::uint32_t item_count = 0;
  std::uint32_t tile_count = 0;
  std::uint32_t address_count = 0;
  std::uint32_t reserved = 0;
  FormatItem items[kItems];
  std::uint64_t addresses[kAddresses];
};
static_assert(sizeof(FormatBatch) <= 4096 - 64, "a kernel's parameters are at most 4 KiB");

}  // namespace gradwire::reduce
