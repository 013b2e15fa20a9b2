// SPDX-License-Identifier: BSD-3-Clause
// The C interface: what wire formats make of values.
#include <array>

#include "client/capi/capi_support.h"
#include "reduce/formats/codec.h"

using namespace gradwire;
using namespace gradwire::client;

static_assert(GW_WIRE_INT8 == static_cast<int>(WireFormat::kInt8));  // test/words.py: the others

namespace {

/// Elements encoded at once: whole blocks, and in L1 with what they travel as.
constexpr std::size_t kPiece = 16 * kFormatBlock;

struct Values {
  WireFormat format;
  DataType datatype;
  std::size_t count;
  const std::byte* input;
  std::byte* output;
  std::byte* residual;
};

void copy_as_they_are(const Values& values) noexcept {
  const std::size_t bytes = values.count * element_bytes(values.datatype);
  if (values.output != nullptr && values.output != values.input) {
    std::memcpy(values.output, values.input, bytes);
  }
  if (values.residual != nullptr) std::memset(values.residual, 0, values.count * sizeof(float));
}

/// @return false if the codec refuses, which it never does for what has been checked.
bool encode_and_decode(const Values& values) noexcept {
  const reduce::FormatCodec codec;
  const std::size_t each = element_bytes(values.datatype);
  std::array<std::byte, wire_bytes(WireFormat::kBf16, DataType::kFloat32, kPiece)> wire;
  for (std::size_t at = 0; at < values.count; at += kPiece) {
    const std::size_t here = std::min(kPiece, values.count - at);
    const reduce::BytesIn member(values.input + at * each, here * each);
    reduce::FormatPart part;
    part.format = values.format;
    part.datatype = values.datatype;
    part.members = {&member, 1};
    part.wire = reduce::BytesOut(wire).first(wire_bytes(values.format, values.datatype, here));
    if (values.output != nullptr) part.stored = {values.output + at * each, here * each};
    if (values.residual != nullptr) {
      part.residual_out = {values.residual + at * sizeof(float), here * sizeof(float)};
    }
    if (!codec.make_part(part)) return false;
  }
  return true;
}

}  // namespace

extern "C" {

gw_status gw_round_trip(gw_wire wire, gw_datatype datatype, uint64_t count, const void* input,
                        void* output, float* residual) {
  return guarded([&]() -> Result<void> {
    const auto format = static_cast<WireFormat>(wire);
    const auto type = static_cast<DataType>(datatype);
    if (wire < 0 || wire > GW_WIRE_INT8) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("wire format {} is unknown: 0 is same, 1 bf16, 2 int8", wire));
    }
    if (datatype < 0 || datatype > GW_UINT8) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("datatype {} is unknown", datatype));
    }
    if (!fits(format == WireFormat::kSame ? WireFormat::kInt8 : format, type)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("elements of {} cannot travel as {}: bf16 is for fp32, int8 and same "
                              "for fp32 and bf16",
                              name_of(type), name_of(format)));
    }
    if (count == 0) return {};
    if (input == nullptr) return null_argument("input");
    if (output == nullptr && residual == nullptr) return null_argument("output, as residual is,");
    if (count > UINT64_MAX / 16) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("count is {}: no memory has so many elements", count));
    }
    const Values values = {format,
                           type,
                           count,
                           static_cast<const std::byte*>(input),
                           static_cast<std::byte*>(output),
                           reinterpret_cast<std::byte*>(residual)};
    if (format == WireFormat::kSame) {
      copy_as_they_are(values);
    } else if (!encode_and_decode(values)) {
      return fail(ErrorCode::kInternal, "the codec refuses what was checked");
    }
    return {};
  });
}

}  // extern "C"
