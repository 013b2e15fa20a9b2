// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What one thread of the kernel of wire formats does: a warp takes a block of 256 elements, of
/// which a thread has every 32nd. First each loads its elements and sums them up; the warp finds
/// the largest among them; then each encodes its own. Tests run this on the host, a warp's threads
/// one after the other.
///
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/formats/format_ops.h"
#include "reduce/gpu/format_batch.h"
#include "reduce/gpu/kernel_parts.h"

namespace gradwire::reduce {

/// Elements need no alignment, which loads of a GPU do.
template <class T>
GRADWIRE_ANYWHERE inline T load_anywhere(std::uint64_t address) noexcept {
  if (address % sizeof(T) == 0) return *at_address<const T>(address);
  return load_unaligned<T>(at_address<const std::byte>(address));
}
template <class T>
GRADWIRE_ANYWHERE inline void store_anywhere(std::uint64_t address, T value) noexcept {
  if (address % sizeof(T) == 0) {
    *at_address<T>(address) = value;
  } else {
    store_unaligned(at_address<std::byte>(address), value);
  }
}

/// A thread's elements of a block.
struct FormatLane {
  float x[kFormatElementsEach];
  std::uint32_t absmax;  ///< the largest of their bits without signs
};

/// Where an item's block lies, and a thread's elements in it.
struct FormatPlace {
  std::uint32_t block;
  std::uint32_t blocks;
  std::uint32_t first;  ///< the thread's first element
  std::uint32_t count;  ///< elements of the item

  GRADWIRE_ANYWHERE FormatPlace(const FormatItem& item, std::uint32_t which,
                                std::uint32_t lane) noexcept
      : block(which),
        blocks((item.count + kFormatBlock - 1) / kFormatBlock),
        first(which * kFormatBlock + lane),
        count(item.count) {}
  GRADWIRE_ANYWHERE std::uint32_t element(std::uint32_t k) const noexcept {
    return first + k * kThreadsPerWarp;
  }
  /// Of an element in a chunk of int8.
  GRADWIRE_ANYWHERE std::uint64_t byte_of(std::uint64_t wire, std::uint32_t i) const noexcept {
    return wire + 4ull * blocks + i;
  }
};

/// x = an array of the item's datatype or of fp32, or x += it.
template <bool kAdd>
GRADWIRE_ANYWHERE inline void take_array(const FormatPlace& place, DataType type,
                                         std::uint64_t array, FormatLane& lane) noexcept {
  GRADWIRE_FLATTEN
  for (std::uint32_t k = 0; k < kFormatElementsEach; ++k) {
    const std::uint32_t i = place.element(k);
    if (i >= place.count) continue;
    const float value = type == DataType::kBfloat16
                            ? bfloat_to_float(load_anywhere<std::uint16_t>(array + 2ull * i))
                            : load_anywhere<float>(array + 4ull * i);
    lane.x[k] = kAdd ? lane.x[k] + value : value;
  }
}

/// x = what a chunk decodes to, or x += it.
template <bool kAdd>
GRADWIRE_ANYWHERE inline void take_decoded(const FormatPlace& place, WireFormat format,
                                           std::uint64_t wire, FormatLane& lane) noexcept {
  const bool is_int8 = format == WireFormat::kInt8;
  const float scale = is_int8 ? load_anywhere<float>(wire + 4ull * place.block) : 1.0f;
  GRADWIRE_FLATTEN
  for (std::uint32_t k = 0; k < kFormatElementsEach; ++k) {
    const std::uint32_t i = place.element(k);
    if (i >= place.count) continue;
    const float value =
        is_int8 ? dequantize(*at_address<const std::int8_t>(place.byte_of(wire, i)), scale)
                : bfloat_to_float(load_anywhere<std::uint16_t>(wire + 2ull * i));
    lane.x[k] = kAdd ? lane.x[k] + value : value;
  }
}

GRADWIRE_ANYWHERE inline void take_result(const FormatPlace& place, const FormatItem& item,
                                          const std::uint64_t* addresses,
                                          FormatLane& lane) noexcept {
  const std::uint64_t sum = addresses[item.source_count + kFromFloats];
  std::uint32_t next = 0;
  if (sum != 0) {
    take_array<false>(place, DataType::kFloat32, sum, lane);
  } else {
    take_decoded<false>(place, item.format, addresses[next++], lane);
  }
  for (; next < item.source_count; ++next) {
    take_decoded<true>(place, item.format, addresses[next], lane);
  }
  GRADWIRE_FLATTEN
  for (std::uint32_t k = 0; k < kFormatElementsEach; ++k) {
    if (item.divisor != 1) lane.x[k] = lane.x[k] / static_cast<float>(item.divisor);
    lane.x[k] = canonical(lane.x[k]);
  }
}

/// The first step of a thread.
GRADWIRE_ANYWHERE inline FormatLane load_lane(const FormatPlace& place, const FormatItem& item,
                                              const std::uint64_t* addresses) noexcept {
  FormatLane lane{};
  if (item.work == FormatWork::kDecode) {
    take_decoded<false>(place, item.format, addresses[0], lane);
  } else if (item.work == FormatWork::kResult) {
    take_result(place, item, addresses, lane);
  } else {
    take_array<false>(place, item.datatype, addresses[0], lane);
    for (std::uint32_t s = 1; s < item.source_count; ++s) {
      take_array<true>(place, item.datatype, addresses[s], lane);
    }
    const std::uint64_t residual = addresses[item.source_count + kFromFloats];
    if (residual != 0) take_array<true>(place, DataType::kFloat32, residual, lane);
  }
  GRADWIRE_FLATTEN
  for (std::uint32_t k = 0; k < kFormatElementsEach; ++k) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(lane.x[k]) & 0x7fffffffu;
    lane.absmax = magnitude > lane.absmax ? magnitude : lane.absmax;
  }
  return lane;
}

/// Writes an element to a chunk. @return what it decodes to.
GRADWIRE_ANYWHERE inline float encode_element(const FormatPlace& place, WireFormat format,
                                              std::uint64_t wire, std::uint32_t i, float x,
                                              float scale, float inverse) noexcept {
  if (format == WireFormat::kInt8) {
    const std::int8_t q = scale == scale ? quantize(x, inverse) : std::int8_t{0};
    *at_address<std::int8_t>(place.byte_of(wire, i)) = q;
    return dequantize(q, scale);
  }
  const std::uint16_t bf16 = float_to_bfloat(x);
  store_anywhere(wire + 2ull * i, bf16);
  return bfloat_to_float(bf16);
}

/// The second step of a thread.
/// @param absmax  of the whole block
GRADWIRE_ANYWHERE inline void finish_lane(const FormatPlace& place, const FormatItem& item,
                                          const std::uint64_t* addresses, const FormatLane& lane,
                                          std::uint32_t absmax) noexcept {
  const std::uint64_t* const to = addresses + item.source_count;
  const std::uint64_t wire = to[kToWire];
  float scale = 1;
  float inverse = 1;
  if (wire != 0 && item.format == WireFormat::kInt8) {
    scale = scale_of(absmax);
    inverse = 1.0f / scale;
    if (place.first % kFormatBlock == 0) store_anywhere(wire + 4ull * place.block, scale);
  }
  GRADWIRE_FLATTEN
  for (std::uint32_t k = 0; k < kFormatElementsEach; ++k) {
    const std::uint32_t i = place.element(k);
    if (i >= place.count) continue;
    const float x = lane.x[k];
    const float decoded =
        wire == 0 ? x : encode_element(place, item.format, wire, i, x, scale, inverse);
    if (to[kToResidual] != 0) {
      store_anywhere(to[kToResidual] + 4ull * i, residual_of(x, decoded));
    }
    if (to[kToStored] == 0) continue;
    if (item.datatype == DataType::kBfloat16) {
      store_anywhere(to[kToStored] + 2ull * i, float_to_bfloat(decoded));
    } else {
      store_anywhere(to[kToStored] + 4ull * i, decoded);
    }
  }
}

/// The block of the format that a warp of a tile takes, beyond the item's last one perhaps.
GRADWIRE_ANYWHERE inline std::uint32_t format_block_of(const FormatItem& item, std::uint32_t tile,
                                                       std::uint32_t warp) noexcept {
  return (tile - item.first_tile) * kFormatBlocksPerTile + warp;
}

#if defined(__CUDACC__)
__device__ inline void format_tile(const FormatBatch& batch, std::uint32_t tile,
                                   std::uint32_t thread) noexcept {
  const FormatItem& item = batch.items[item_of_tile(batch, tile)];
  const std::uint64_t* const addresses = batch.addresses + item.first_address;
  const FormatPlace place(item, format_block_of(item, tile, thread / kThreadsPerWarp),
                          thread % kThreadsPerWarp);
  if (place.block >= place.blocks) return;  // all of the warp
  const FormatLane lane = load_lane(place, item, addresses);
  std::uint32_t absmax = lane.absmax;
  for (std::uint32_t lanes = 1; lanes < kThreadsPerWarp; lanes *= 2) {
    const std::uint32_t other = __shfl_xor_sync(~0u, absmax, lanes);
    absmax = other > absmax ? other : absmax;
  }
  finish_lane(place, item, addresses, lane, absmax);
}
#else
/// A whole tile, a warp's threads one after the other.
inline void format_tile(const FormatBatch& batch, std::uint32_t tile) noexcept {
  const FormatItem& item = batch.items[item_of_tile(batch, tile)];
  const std::uint64_t* const addresses = batch.addresses + item.first_address;
  for (std::uint32_t warp = 0; warp < kFormatBlocksPerTile; ++warp) {
    const std::uint32_t block = format_block_of(item, tile, warp);
    if (block >= FormatPlace(item, block, 0).blocks) return;
    FormatLane lanes[kThreadsPerWarp];
    std::uint32_t absmax = 0;
    for (std::uint32_t lane = 0; lane < kThreadsPerWarp; ++lane) {
      lanes[lane] = load_lane(FormatPlace(item, block, lane), item, addresses);
      absmax = lanes[lane].absmax > absmax ? lanes[lane].absmax : absmax;
    }
    for (std::uint32_t lane = 0; lane < kThreadsPerWarp; ++lane) {
      finish_lane(FormatPlace(item, block, lane), item, addresses, lanes[lane], absmax);
    }
  }
}
#endif

}  // namespace gradwire::reduce
