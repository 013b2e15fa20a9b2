// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How elements of an op travel between ranks, if not in the op's datatype
/// (doc/protocol/formats.md): the formats, what they are for, and how many bytes they take.
/// lib/reduce/formats has the arithmetic. Any thread; nothing here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/types.h"

namespace gradwire {

/// Of a call, and compared between ranks. The values go on the wire and across the C ABI: never
/// renumber.
enum class WireFormat : std::uint8_t {
  kSame = 0,  ///< the op's datatype
  kBf16 = 1,  ///< the upper half of fp32, rounded
  kInt8 = 2,  ///< a byte each, and a scale for each block
};
/// Every format.
inline constexpr auto kWireFormatTable = std::to_array<Named<WireFormat>>({
    {WireFormat::kSame, "same"},
    {WireFormat::kBf16, "bf16"},
    {WireFormat::kInt8, "int8"},
});
static_assert(counts_from(0, kWireFormatTable));
inline constexpr auto kWireFormats = values_of(kWireFormatTable);

/// Elements that have one scale in `int8`: counted from the op's first element, and of a
/// reduce-scatter from the first one of each process's block. Chunks begin on such a border.
inline constexpr std::size_t kFormatBlock = 256;

[[nodiscard]] constexpr bool is_valid(WireFormat format) noexcept {
  return static_cast<std::size_t>(format) < kWireFormats.size();
}
/// "same", "bf16", "int8"; "format?" outside the enumeration.
[[nodiscard]] constexpr std::string_view name_of(WireFormat format) noexcept {
  return is_valid(format) ? kWireFormatTable[static_cast<std::size_t>(format)].name : "format?";
}

/// Whether elements of `type` can travel in `format`.
[[nodiscard]] constexpr bool fits(WireFormat format, DataType type) noexcept {
  switch (format) {
    case WireFormat::kSame:
      return true;
    case WireFormat::kBf16:
      return type == DataType::kFloat32;
    case WireFormat::kInt8:
      return type == DataType::kFloat32 || type == DataType::kBfloat16;
  }
  return false;
}

/// Whether such a call can have `format`: `same` is for every call, the others for sums alone.
[[nodiscard]] constexpr bool fits(WireFormat format, Collective collective, RedOp op,
                                  DataType type) noexcept {
  if (format == WireFormat::kSame) return true;
  return (collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
          collective == Collective::kReduce) &&
         (op == RedOp::kSum || op == RedOp::kAvg) && fits(format, type);
}

/// Why such a call cannot have `format`, which does not fit it: what the format is for. Ends with
/// NUL.
[[nodiscard]] constexpr const char* misfit_of(WireFormat format, Collective collective,
                                              RedOp op) noexcept {
  if (collective != Collective::kAllReduce && collective != Collective::kReduceScatter &&
      collective != Collective::kReduce) {
    return "a wire format is for all-reduce, reduce-scatter and reduce";
  }
  if (op != RedOp::kSum && op != RedOp::kAvg) return "a wire format is for sum and avg";
  return format == WireFormat::kBf16 ? "bf16 is for fp32" : "int8 is for fp32 and bf16";
}

/// Bytes of `count` elements of `type` on the wire. `count` is below 2^60.
[[nodiscard]] constexpr std::size_t wire_bytes(WireFormat format, DataType type,
                                               std::size_t count) noexcept {
  switch (format) {
    case WireFormat::kSame:
      break;
    case WireFormat::kBf16:
      return 2 * count;
    case WireFormat::kInt8:
      return count + 4 * ((count + kFormatBlock - 1) / kFormatBlock);
  }
  return count * element_bytes(type);
}

/// Elements of `type` that a chunk of at most `payload_bytes` carries: of `int8` whole blocks, none
/// if not even one has room.
[[nodiscard]] constexpr std::size_t elements_in_chunk(WireFormat format, DataType type,
                                                      std::size_t payload_bytes) noexcept {
  switch (format) {
    case WireFormat::kSame:
      break;
    case WireFormat::kBf16:
      return payload_bytes / 2;
    case WireFormat::kInt8:
      return payload_bytes / wire_bytes(format, type, kFormatBlock) * kFormatBlock;
  }
  const std::size_t each = element_bytes(type);
  return each == 0 ? 0 : payload_bytes / each;
}

}  // namespace gradwire
