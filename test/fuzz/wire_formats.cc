// SPDX-License-Identifier: BSD-3-Clause
// Decodes any bytes as chunks of wire formats. Nothing past their end may be read or written, every
// instruction set gives the same bits, and what was decoded survives its own encoding: a second
// round trip changes no bit of bf16.
//
// The input: a byte that says the format (bit 0), the datatype (bit 1), whether lengths are made to
// fit (bits 2 and 3, both 0: as they are), how far arrays lie off a border (bits 4 to 7); a byte
// for the divisor; then the chunk.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "fuzz/input.h"
#include "reduce/formats/codec.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;

/// Memory of its own of exactly so many bytes, so that a sanitizer sees what is beyond.
struct Exact {
  Exact(std::size_t bytes, std::size_t off)
      : memory(std::make_unique<std::byte[]>(bytes + off)), span(memory.get() + off, bytes) {}
  std::unique_ptr<std::byte[]> memory;
  std::span<std::byte> span;
};

bool equal(const Exact& a, const Exact& b) {
  return a.span.size() == b.span.size() &&
         (a.span.empty() || std::memcmp(a.span.data(), b.span.data(), a.span.size()) == 0);
}
std::vector<FormatCodec> codecs() {
  std::vector<FormatCodec> found;
  for (const FormatIsa isa : kFormatIsas) {
    if (const auto codec = FormatCodec::of(isa)) found.push_back(*codec);
  }
  return found;
}

/// What one codec makes of a chunk.
struct Made {
  bool ok;
  Exact decoded;
  Exact sum;
  Exact stored;
  Exact wire;
};

Made make(const FormatCodec& codec, WireFormat format, DataType type, const Exact& chunk,
          std::size_t count, std::uint32_t divisor, std::size_t off) {
  Made made{false, Exact(count * element_bytes(type), off), Exact(count * 4, off),
            Exact(count * element_bytes(type), off), Exact(wire_bytes(format, type, count), off)};
  made.ok = codec.decode(format, type, chunk.span, made.decoded.span);
  // Twice, so that infinities of both signs meet.
  FUZZ_CHECK(codec.add_decoded(format, chunk.span, made.sum.span) == made.ok);
  FUZZ_CHECK(codec.add_decoded(format, chunk.span, made.sum.span) == made.ok);
  const std::array<BytesIn, 2> parts = {chunk.span, chunk.span};
  FormatResult result;
  result.format = format;
  result.datatype = type;
  result.count = count;
  result.sum = made.sum.span;
  result.parts = parts;
  result.divisor = divisor;
  result.wire = made.wire.span;
  result.stored = made.stored.span;
  FUZZ_CHECK(codec.make_result(result) == made.ok);
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(std::as_bytes(std::span(data, size)));
  static const std::vector<FormatCodec> kCodecs = codecs();
  const std::uint8_t says = input.u8();
  const WireFormat format = (says & 1) != 0 ? WireFormat::kInt8 : WireFormat::kBf16;
  const DataType type = (says & 3) == 3 ? DataType::kBfloat16 : DataType::kFloat32;
  const std::size_t off = says >> 4;
  const std::uint32_t divisor = input.u8() + 1u;
  const std::span<const std::byte> rest = input.rest();
  const std::size_t left = rest.size();
  // So many elements; if lengths are not made to fit, the bytes may be too few or too many.
  const std::size_t count = format == WireFormat::kBf16 ? left / 2 : left - left / 65;
  const bool fits = (says & 0x0c) != 0;
  Exact chunk(fits ? wire_bytes(format, type, count) : left, off);
  std::copy_n(rest.begin(), std::min(chunk.span.size(), left), chunk.span.begin());
  const Made first = make(kCodecs[0], format, type, chunk, count, divisor, off);
  FUZZ_CHECK(!fits || first.ok);
  for (const FormatCodec& codec : kCodecs) {
    const Made made = make(codec, format, type, chunk, count, divisor, off);
    FUZZ_CHECK(made.ok == first.ok && equal(made.decoded, first.decoded) &&
               equal(made.sum, first.sum) && equal(made.stored, first.stored) &&
               equal(made.wire, first.wire));
  }
  if (!first.ok || format != WireFormat::kBf16) return 0;
  Exact again(first.wire.span.size(), off);
  FUZZ_CHECK(kCodecs[0].encode(format, type, first.stored.span, again.span));
  FUZZ_CHECK(equal(again, first.wire));
  return 0;
}
