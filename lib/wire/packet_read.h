// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the parts of the decoder share: packet_decode.cc reads every type but those of tiles, which
/// packet_decode_tiles.cc reads. Private to lib/wire. Any thread; nothing here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/layout.h"
#include "wire/packet.h"

namespace gradwire::wire::reading {

/// A packet's bytes as a struct of alignment 1, where they lie: a copy of 64 bytes costs as much as
/// all that is done with them.
template <class T>
[[nodiscard]] const T& view(const void* bytes) noexcept {
  static_assert(alignof(T) == 1);
  return *static_cast<const T*>(bytes);
}

template <std::size_t N>
[[nodiscard]] bool all_zero(const std::array<std::uint8_t, N>& bytes) noexcept {
  std::uint8_t any = 0;
  for (const std::uint8_t byte : bytes) any |= byte;
  return any == 0;
}

/// A packet must be as long as its fields say: Ethernet's padding is cut off before by IP's length,
/// so what is longer was not made by this protocol.
[[nodiscard]] inline Drop check_payload_bytes(std::size_t have, std::size_t want) noexcept {
  if (have < want) return Drop::kShort;
  return have == want ? Drop::kNone : Drop::kMalformed;
}

/// @param fields  of a packet, and `data` what is decoded: both have collective, datatype and root.
template <class Fields, class Decoded>
[[nodiscard, gnu::always_inline]] inline bool read_kinds(const Fields& fields,
                                                         Decoded& data) noexcept {
  data.datatype = static_cast<DataType>(fields.collective_and_datatype & 0xf);
  data.collective = Collective::kAllReduce;
  data.root = static_cast<std::uint16_t>(fields.root.get() - 1u);
  if (fields.collective_and_datatype < kDataTypeCount && data.root == kNoRoot) return true;
  const auto collective = static_cast<Collective>(fields.collective_and_datatype >> 4);
  if (collective == Collective::kAllReduce) return false;  // it is written as 0
  if (collective != Collective{}) data.collective = collective;
  return is_valid(data.datatype) && is_valid(data.collective) && !is_transfer(data.collective) &&
         has_root(data.collective) == (data.root != kNoRoot);
}

/// Of a tile piece or a tile call, of a tile pull: as decode_body(), once the header's own fields
/// and the CRC of a payload that is no chunk are right.
[[nodiscard]] Drop read_tile(const layout::Header& header, Packet& out) noexcept;
[[nodiscard]] Drop read_tile_pull(const layout::Header& header, Packet& out) noexcept;

}  // namespace gradwire::wire::reading
