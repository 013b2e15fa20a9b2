// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Encoding and decoding of the wire formats `bf16` and `int8` (doc/protocol/formats.md), alone and
/// joined with what an op does with the numbers before and after, so that memory is walked once.
/// Every instruction set gives the same bits. They do not depend on the caller's floating-point
/// control either (MXCSR: rounding, FTZ, DAZ): each call sets the default for its time.
///
/// Arrays need no alignment, and begin on a border of the op's blocks. `wire` is a chunk of any
/// length: the scales of all its blocks, then its elements; wire_bytes() (base/wire_format.h) in
/// all. Functions check lengths: they do nothing and return false if these do not fit each other,
/// if the format is `same`, or if it is not for the datatype. Outputs overlap nothing, unless a
/// comment allows it. Any thread; nothing here allocates or throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/types.h"
#include "base/wire_format.h"

namespace gradwire::reduce {

struct FormatKernels;
using BytesIn = std::span<const std::byte>;
using BytesOut = std::span<std::byte>;

enum class FormatIsa : std::uint8_t { kScalar, kAvx2, kAvx512 };
inline constexpr FormatIsa kFormatIsas[] = {FormatIsa::kScalar, FormatIsa::kAvx2,
                                            FormatIsa::kAvx512};

/// What a rank sends: steps 1 and 2 of the page's "The order of an op".
struct FormatPart {
  WireFormat format = WireFormat::kSame;
  DataType datatype = DataType::kFloat32;  ///< of members and `stored`
  std::span<const BytesIn> members;        ///< one at least, [count] each, folded in this order
  /// Empty, or fp32 [count]: added to the fold before it is encoded.
  BytesIn residual_in;
  /// Empty, or fp32 [count]: what encoding lost, 0 if that is no finite number. Not the memory of
  /// `residual_in`, since a part may have to be made twice.
  BytesOut residual_out;
  BytesOut wire;  ///< [wire_bytes()]
  /// Empty, or [count]: what `wire` decodes to. It may be one of the members.
  BytesOut stored;
};

/// What an owner makes of parts: steps 3 to 6. The sum is fp32, first `sum`, then the parts in
/// their order; it is divided once, and a NaN becomes the canonical one.
struct FormatResult {
  WireFormat format = WireFormat::kSame;   ///< of the parts and `wire`
  DataType datatype = DataType::kFloat32;  ///< of `stored`
  std::size_t count = 0;
  BytesIn sum;                     ///< empty, or fp32 [count]: what earlier parts came to
  std::span<const BytesIn> parts;  ///< [wire_bytes()] each; none only if there is a `sum`
  std::uint32_t divisor = 1;       ///< [1, kMaxProcesses]; 1 = no division
  BytesOut wire;                   ///< [wire_bytes()], or empty if the result does not travel
  /// Empty, or [count]: what `wire` decodes to, or the sum itself if there is no `wire`. It may be
  /// `sum`, if both are fp32.
  BytesOut stored;
};

/// Whether lengths, format and datatype fit each other, as FormatCodec checks them.
[[nodiscard]] bool is_well_formed(const FormatPart& part) noexcept;
[[nodiscard]] bool is_well_formed(const FormatResult& result) noexcept;
/// Of a decoding to `values`, of `type`.
[[nodiscard]] bool is_well_formed(WireFormat format, DataType type, BytesIn wire,
                                  BytesIn values) noexcept;

/// One instruction set's functions. A pointer to a table: copy it freely.
class FormatCodec {
 public:
  /// The fastest that this CPU and its operating system have.
  FormatCodec() noexcept;
  /// @return nothing if they do not have it.
  [[nodiscard]] static std::optional<FormatCodec> of(FormatIsa isa) noexcept;

  /// "scalar", "avx2", "avx512".
  [[nodiscard]] const char* name() const noexcept;

  /// @param values  [count] of `type`
  /// @param wire    [wire_bytes(format, type, count)]
  [[nodiscard]] bool encode(WireFormat format, DataType type, BytesIn values,
                            BytesOut wire) const noexcept;
  /// Takes any bytes. What they decode to is rounded if `type` is bf16.
  /// @param values  [count] of `type`
  [[nodiscard]] bool decode(WireFormat format, DataType type, BytesIn wire,
                            BytesOut values) const noexcept;
  /// sum += what `wire` decodes to; a NaN is the canonical one. Step 3, part by part.
  /// @param sum  fp32 [count]
  [[nodiscard]] bool add_decoded(WireFormat format, BytesIn wire, BytesOut sum) const noexcept;
  [[nodiscard]] bool make_part(const FormatPart& part) const noexcept;
  [[nodiscard]] bool make_result(const FormatResult& result) const noexcept;

 private:
  explicit FormatCodec(const FormatKernels& kernels) noexcept : kernels_(&kernels) {}
  const FormatKernels* kernels_;
};

}  // namespace gradwire::reduce
