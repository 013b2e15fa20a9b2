// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/formats/codec.h"

#include "base/float_environment.h"
#include "reduce/formats/format_kernels.h"

namespace gradwire::reduce {
namespace {

constexpr std::size_t kCountMax = std::size_t{1} << 56;  ///< no number of bytes overflows

/// Whether there is something to encode or decode that way.
bool travels(WireFormat format, DataType type) noexcept {
  return format != WireFormat::kSame && fits(format, type);
}
/// The functions of a format that has some.
const FormatFunctions& functions_of(const FormatKernels& kernels, WireFormat format) noexcept {
  return kernels.of[static_cast<std::size_t>(format)];
}
/// Whether an array that need not be there has its length if it is.
bool is_empty_or(std::size_t bytes, BytesIn array) noexcept {
  return array.empty() || array.size() == bytes;
}
}  // namespace

bool is_well_formed(WireFormat format, DataType type, BytesIn wire, BytesIn values) noexcept {
  if (!travels(format, type)) return false;
  const std::size_t count = values.size() / element_bytes(type);
  return values.size() % element_bytes(type) == 0 && count < kCountMax &&
         wire.size() == wire_bytes(format, type, count);
}

bool is_well_formed(const FormatPart& part) noexcept {
  if (part.members.empty() ||
      !is_well_formed(part.format, part.datatype, part.wire, part.members[0])) {
    return false;
  }
  const std::size_t bytes = part.members[0].size();
  for (const BytesIn& member : part.members) {
    if (member.size() != bytes) return false;
  }
  const std::size_t as_floats = bytes / element_bytes(part.datatype) * sizeof(float);
  return is_empty_or(as_floats, part.residual_in) && is_empty_or(as_floats, part.residual_out) &&
         is_empty_or(bytes, part.stored);
}

bool is_well_formed(const FormatResult& result) noexcept {
  const std::size_t count = result.count;
  if (!travels(result.format, result.datatype) || count >= kCountMax || result.divisor == 0 ||
      result.divisor > kMaxProcesses) {
    return false;
  }
  const std::size_t on_wire = wire_bytes(result.format, result.datatype, count);
  for (const BytesIn& part : result.parts) {
    if (part.size() != on_wire) return false;
  }
  const bool has_source = !result.sum.empty() || !result.parts.empty() || count == 0;
  return has_source && is_empty_or(count * sizeof(float), result.sum) &&
         is_empty_or(on_wire, result.wire) &&
         is_empty_or(count * element_bytes(result.datatype), result.stored);
}

FormatCodec::FormatCodec() noexcept : kernels_(&scalar_format_kernels()) {
  for (const FormatKernels* const better : {avx512_format_kernels(), avx2_format_kernels()}) {
    if (better == nullptr) continue;
    kernels_ = better;
    return;
  }
}

std::optional<FormatCodec> FormatCodec::of(FormatIsa isa) noexcept {
  const FormatKernels* const kernels = isa == FormatIsa::kAvx512 ? avx512_format_kernels()
                                       : isa == FormatIsa::kAvx2 ? avx2_format_kernels()
                                                                 : &scalar_format_kernels();
  if (kernels == nullptr) return std::nullopt;
  return FormatCodec(*kernels);
}

const char* FormatCodec::name() const noexcept { return kernels_->name; }

bool FormatCodec::encode(WireFormat format, DataType type, BytesIn values,
                         BytesOut wire) const noexcept {
  FormatPart part;
  part.format = format;
  part.datatype = type;
  part.members = {&values, 1};
  part.wire = wire;
  return make_part(part);
}

bool FormatCodec::decode(WireFormat format, DataType type, BytesIn wire,
                         BytesOut values) const noexcept {
  if (!is_well_formed(format, type, wire, values)) return false;
  const FloatEnvironment defaults;
  functions_of(*kernels_, format)
      .decode(type, wire.data(), values.data(), values.size() / element_bytes(type));
  return true;
}

bool FormatCodec::add_decoded(WireFormat format, BytesIn wire, BytesOut sum) const noexcept {
  if (!is_well_formed(format, DataType::kFloat32, wire, sum)) return false;
  const FloatEnvironment defaults;
  functions_of(*kernels_, format).add(wire.data(), sum.data(), sum.size() / sizeof(float));
  return true;
}

bool FormatCodec::make_part(const FormatPart& part) const noexcept {
  if (!is_well_formed(part)) return false;
  const FloatEnvironment defaults;
  functions_of(*kernels_, part.format)
      .part(part, part.members[0].size() / element_bytes(part.datatype));
  return true;
}

bool FormatCodec::make_result(const FormatResult& result) const noexcept {
  if (!is_well_formed(result)) return false;
  const FloatEnvironment defaults;
  functions_of(*kernels_, result.format).result(result);
  return true;
}

}  // namespace gradwire::reduce
