// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How an entry becomes an item of a batch. Private to lib/reduce and its tests. Any thread;
/// nothing here allocates.
#pragma once

#include <bit>

#include "reduce/backend.h"
#include "reduce/cpu_kernels.h"
#include "reduce/gpu/batch.h"
#include "reduce/gpu/crc_ops.h"
#include "reduce/lowering.h"

namespace gradwire::reduce {

inline void clear(Batch& batch) noexcept {
  batch.item_count = batch.tile_count = batch.address_count = 0;
  batch.uniform = 1;
}

[[nodiscard]] inline bool has_room(const Batch& batch, const Fold& fold) noexcept {
  return batch.item_count < Batch::kItems &&
         batch.address_count + fold.source_count + fold.target_count + fold.factor_count + 1 <=
             Batch::kAddresses;
}

/// @param fold the result of lower() for the entry, perhaps with other addresses.
/// @param crc_words  kCrcWordsPerTile for each tile, if the entry asks for its CRC.
/// @param batch      has room.
inline void append(Batch& batch, const Entry& entry, const Fold& fold,
                   const std::uint32_t* crc_words) noexcept {
  const std::uint32_t width = element_bytes(entry.datatype);
  const std::uint32_t bytes = entry.count * target_width(entry);
  BatchItem& item = batch.items[batch.item_count++];
  item = {};
  item.first_address = static_cast<std::uint16_t>(batch.address_count);
  item.first_tile = batch.tile_count;
  item.divisor = fold.divisor;
  item.source_count = static_cast<std::uint16_t>(fold.source_count);
  item.target_count = static_cast<std::uint8_t>(fold.target_count);
  item.datatype = entry.datatype;
  const bool sums = entry.redop == RedOp::kAvg || entry.redop == RedOp::kPremulSum;
  item.redop = sums ? RedOp::kSum : entry.redop;
  item.factors = static_cast<std::uint8_t>(fold.factor_count);
  item.copies = copies_bits(fold) ? 1 : 0;
  item.settles = fold.in_order ? 1 : 0;
  item.wide = !fold.wide ? Wide::kNothing : fold.in_order ? Wide::kSources : Wide::kTargets;
  const bool is_general =
      fold.in_order || fold.wide || fold.factor_count != 0 || is_bitwise(entry.redop);
  item.general = item.copies == 0 && is_general ? 1 : 0;
  item.count = item.copies != 0 ? bytes : entry.count;
  item.bytes = bytes;
  batch.tile_count += (bytes + kTileBytes - 1) / kTileBytes;
  std::uint64_t bits = 0;
  const auto add = [&](const void* pointer) {
    bits |= batch.addresses[batch.address_count++] = reinterpret_cast<std::uintptr_t>(pointer);
  };
  for (std::size_t s = 0; s < fold.source_count; ++s) add(fold.sources[s]);
  for (std::size_t t = 0; t < fold.target_count; ++t) add(fold.targets[t]);
  for (std::size_t f = 0; f < fold.factor_count; ++f) {
    batch.addresses[batch.address_count++] = std::bit_cast<std::uint64_t>(fold.factors[f]);
  }
  const std::uint32_t natural = item.copies != 0 ? 1 : width;
  item.alignment = bits % 16 == 0        ? std::uint8_t{16}
                   : bits % natural == 0 ? static_cast<std::uint8_t>(natural)
                                         : std::uint8_t{1};
  if (entry.crc) {
    item.crc = 1;
    // The packet is the first target, or the last source if it is only read.
    const bool reads = entry.kind == Kind::kReduceToOutput || fold.target_count == 0;
    item.crc_of = static_cast<std::uint16_t>(reads ? fold.source_count - 1 : fold.source_count);
    add(crc_words);
  }
  if (batch.item_count == 1) {
    batch.datatype = item.datatype;
    batch.redop = item.redop;
  }
  if (item.copies != 0 || item.general != 0 || item.datatype != batch.datatype ||
      item.redop != batch.redop) {
    batch.uniform = 0;
  }
}

/// @return the CRC32C of an item, combined from the words of its tiles, each of which stands at its
/// tile's end.
[[nodiscard]] inline std::uint32_t crc_of(const Batch& batch, std::uint32_t item,
                                          const std::uint32_t* words) noexcept {
  std::uint32_t state = 0;
  for (std::uint32_t left = batch.items[item].bytes; left > 0; words += kCrcWordsPerTile) {
    const std::uint32_t bytes = left < kTileBytes ? left : kTileBytes;
    state = bytes == kTileBytes ? crc32c_move_by<kTileBytes>(state) : crc32c_move(state, bytes);
    for (std::uint32_t w = 0; w < kCrcWordsPerTile; ++w) state ^= words[w];
    left -= bytes;
  }
  return ~state;
}

}  // namespace gradwire::reduce
