// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Puts parts, results and decodings into a batch for a GPU. Lengths are checked as FormatCodec
/// does. Memory that they name has to be the GPU's, or registered with it, until the batch is done.
/// Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <cstdint>

#include "reduce/formats/codec.h"
#include "reduce/gpu/format_batch.h"

namespace gradwire::reduce {

/// @return false if the batch has no room, or the item has too many elements: nothing is changed.
[[nodiscard]] inline bool append_item(FormatBatch& batch, FormatItem item, std::size_t count,
                                      std::span<const BytesIn> sources,
                                      const std::uint64_t (&others)[kFormatAddresses]) noexcept {
  if (batch.item_count == FormatBatch::kItems || count > FormatBatch::kElementsMax ||
      sources.size() + kFormatAddresses > FormatBatch::kAddresses - batch.address_count) {
    return false;
  }
  constexpr std::size_t kTileElements = kFormatBlock * kFormatBlocksPerTile;
  item.count = static_cast<std::uint32_t>(count);
  item.first_tile = batch.tile_count;
  item.first_address = static_cast<std::uint16_t>(batch.address_count);
  item.source_count = static_cast<std::uint16_t>(sources.size());
  for (const BytesIn& source : sources) {
    batch.addresses[batch.address_count++] = reinterpret_cast<std::uintptr_t>(source.data());
  }
  for (const std::uint64_t other : others) batch.addresses[batch.address_count++] = other;
  batch.items[batch.item_count++] = item;
  batch.tile_count += static_cast<std::uint32_t>((count + kTileElements - 1) / kTileElements);
  return true;
}

/// The address of what is there, or 0.
[[nodiscard]] inline std::uint64_t address_in_batch(BytesIn array) noexcept {
  return array.empty() ? 0 : reinterpret_cast<std::uintptr_t>(array.data());
}

/// @return false if lengths do not fit, or the batch has no room.
[[nodiscard]] inline bool append(FormatBatch& batch, const FormatPart& part) noexcept {
  if (!is_well_formed(part)) return false;
  FormatItem item;
  item.format = part.format;
  item.datatype = part.datatype;
  item.work = FormatWork::kPart;
  return append_item(batch, item, part.members[0].size() / element_bytes(part.datatype),
                     part.members,
                     {address_in_batch(part.wire), address_in_batch(part.stored),
                      address_in_batch(part.residual_in), address_in_batch(part.residual_out)});
}
[[nodiscard]] inline bool append(FormatBatch& batch, const FormatResult& result) noexcept {
  if (!is_well_formed(result)) return false;
  FormatItem item;
  item.format = result.format;
  item.datatype = result.datatype;
  item.work = FormatWork::kResult;
  item.divisor = result.divisor;
  return append_item(batch, item, result.count, result.parts,
                     {address_in_batch(result.wire), address_in_batch(result.stored),
                      address_in_batch(result.sum), 0});
}
/// As FormatCodec::decode().
[[nodiscard]] inline bool append_decoding(FormatBatch& batch, WireFormat format, DataType type,
                                          BytesIn wire, BytesOut values) noexcept {
  if (!is_well_formed(format, type, wire, values)) return false;
  FormatItem item;
  item.format = format;
  item.datatype = type;
  item.work = FormatWork::kDecode;
  return append_item(batch, item, values.size() / element_bytes(type), {&wire, 1},
                     {0, address_in_batch(values), 0, 0});
}

}  // namespace gradwire::reduce
