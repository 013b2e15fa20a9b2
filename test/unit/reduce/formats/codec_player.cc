// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Does what standard input says with a codec, and writes what comes of it to standard output, so
/// that beside_reference.py can compare it with numpy. Single thread.
///
/// A request is seven numbers of 32 bits (instruction set, action, format, datatype, count, arrays,
/// divisor), then the arrays, one after the other. The answer is a number of 32 bits, 1 or 0 (this
/// CPU has no such instructions, or lengths are refused), and if it is 1 the outputs:
///   action 0, a part: arrays are the members, and fp32 residuals as the last one. Outputs: what
///     travels, what it decodes to, residuals.
///   action 1, a result that travels: arrays are parts. Outputs: what travels, what it decodes to.
///   action 2, a result that does not travel: arrays are parts. Output: the sum.
///   action 3, decode: one array. Output: what it decodes to.
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "reduce/formats/codec.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using Bytes = std::vector<std::byte>;

struct Request {
  FormatIsa isa;
  std::uint32_t action;
  WireFormat format;
  DataType type;
  std::uint32_t count;
  std::uint32_t arrays;
  std::uint32_t divisor;
};

// An empty vector has no address, and the C library's functions must be given one.
bool read(void* to, std::size_t bytes) {
  return bytes == 0 || std::fread(to, 1, bytes, stdin) == bytes;
}
void write(const void* from, std::size_t bytes) {
  if (bytes != 0) std::fwrite(from, 1, bytes, stdout);
}

bool read_request(Request& request) {
  std::array<std::uint32_t, 7> words{};
  if (!read(words.data(), sizeof words)) return false;
  request = {static_cast<FormatIsa>(words[0]),
             words[1],
             static_cast<WireFormat>(words[2]),
             static_cast<DataType>(words[3]),
             words[4],
             words[5],
             words[6]};
  return true;
}

std::vector<Bytes> run(const FormatCodec& codec, const Request& request,
                       const std::vector<Bytes>& arrays) {
  std::vector<BytesIn> spans(arrays.begin(), arrays.end());
  Bytes wire(wire_bytes(request.format, request.type, request.count));
  Bytes stored(std::size_t{request.count} * element_bytes(request.type));
  Bytes residual(std::size_t{request.count} * 4);
  if (request.action == 0) {
    FormatPart part;
    part.format = request.format;
    part.datatype = request.type;
    part.members = std::span(spans).first(spans.size() - 1);
    part.residual_in = spans.back();
    part.residual_out = residual;
    part.wire = wire;
    part.stored = stored;
    if (!codec.make_part(part)) return {};
    return {wire, stored, residual};
  }
  if (request.action == 3) {
    if (!codec.decode(request.format, request.type, spans[0], stored)) return {};
    return {stored};
  }
  FormatResult result;
  result.format = request.format;
  result.datatype = request.type;
  result.count = request.count;
  result.parts = spans;
  result.divisor = request.divisor;
  if (request.action == 1) result.wire = wire;
  result.stored = stored;
  if (!codec.make_result(result)) return {};
  if (request.action == 1) return {wire, stored};
  return {stored};
}

}  // namespace

int main() {
  for (Request request{}; read_request(request);) {
    std::vector<Bytes> arrays;
    for (std::uint32_t i = 0; i < request.arrays; ++i) {
      const bool is_residual = request.action == 0 && i + 1 == request.arrays;
      const std::size_t each = is_residual ? 4 : element_bytes(request.type);
      arrays.emplace_back(request.action == 0
                              ? request.count * each
                              : wire_bytes(request.format, request.type, request.count));
      if (!read(arrays.back().data(), arrays.back().size())) return 1;
    }
    const auto codec = FormatCodec::of(request.isa);
    const auto outputs = codec ? run(*codec, request, arrays) : std::vector<Bytes>{};
    const std::uint32_t ok = outputs.empty() ? 0 : 1;
    write(&ok, sizeof ok);
    for (const Bytes& output : outputs) write(output.data(), output.size());
    std::fflush(stdout);
  }
  return 0;
}
