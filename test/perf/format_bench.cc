// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How fast one core encodes and decodes wire formats, chunk by chunk, by each instruction set that
/// this CPU has. Prints gigabytes of the fp32 side a second, the median of the rounds, of which
/// each measures every row once, and memcpy of the same fp32 arrays with it: others use the machine
/// too. Single thread.
///
/// usage: format_bench [PAYLOAD_BYTES [ROUNDS]]
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu_model.h"
#include "quartiles.h"
#include "reduce/formats/codec.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;

constexpr std::size_t kSources = 4;  ///< members of a part, parts of a result
/// Behind the headers of a packet: not aligned.
constexpr std::size_t kOffset = 106;

using Bytes = std::vector<std::byte>;

/// A tile's worth of arrays: as many fp32 elements as the working set has.
struct Arrays {
  std::size_t chunk;  ///< elements
  std::size_t chunks;
  std::size_t chunk_wire;  ///< bytes
  std::vector<Bytes> members;
  std::vector<Bytes> wires;
  Bytes stored;
  Bytes residual_in;
  Bytes residual_out;

  Arrays(WireFormat format, std::size_t payload, std::size_t elements)
      : chunk(elements_in_chunk(format, DataType::kFloat32, payload)),
        chunks(std::max<std::size_t>(1, elements / chunk)),
        chunk_wire(wire_bytes(format, DataType::kFloat32, chunk)),
        members(kSources, Bytes(chunk * chunks * 4)),
        wires(kSources + 1, Bytes(chunk_wire * chunks + kOffset)),
        stored(chunk * chunks * 4),
        residual_in(chunk * chunks * 4),
        residual_out(chunk * chunks * 4) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (Bytes& member : members) {
      for (std::size_t i = 0; i < member.size(); i += 4) {
        const float value = normal(random);
        std::memcpy(&member[i], &value, 4);
      }
    }
    const FormatCodec codec;
    for (std::size_t s = 0; s <= kSources; ++s) {
      for (std::size_t c = 0; c < chunks; ++c) {
        require(
            codec.encode(format, DataType::kFloat32, values(members[s % kSources], c), wire(s, c)));
      }
    }
  }
  static void require(bool ok) {
    if (ok) return;
    fmt::print(stderr, "the codec refused a chunk\n");
    std::exit(1);
  }
  [[nodiscard]] BytesOut values(Bytes& array, std::size_t c, std::size_t each = 4) const {
    return BytesOut(array).subspan(c * chunk * each, chunk * each);
  }
  [[nodiscard]] BytesOut wire(std::size_t s, std::size_t c) {
    return BytesOut(wires[s]).subspan(kOffset + c * chunk_wire, chunk_wire);
  }
};

enum class Work {
  kMemcpy,
  kEncode,
  kEncodeBf16,  ///< of bf16 elements
  kDecode,
  kAdd,
  kEncodeAndStore,
  kMembers,
  kResidual,
  kResult,
};
struct Row {
  Work work;
  const char* name;
};
constexpr std::array kRows = {
    Row{Work::kMemcpy, "memcpy"},
    Row{Work::kEncode, "encode"},
    Row{Work::kEncodeBf16, "encode bf16 elements"},
    Row{Work::kDecode, "decode"},
    Row{Work::kAdd, "decode and add"},
    Row{Work::kEncodeAndStore, "encode, store decoded"},
    Row{Work::kMembers, "fold 4 members, encode"},
    Row{Work::kResidual, "encode with residuals"},
    Row{Work::kResult, "sum 4 parts, encode, store"},
};

bool run_chunk(const FormatCodec& codec, WireFormat format, Work work, Arrays& a, std::size_t c) {
  FormatPart part;
  part.format = format;
  part.wire = a.wire(kSources, c);
  std::array<BytesIn, kSources> sources;
  sources[0] = a.values(a.members[0], c);
  part.members = {sources.data(), 1};
  switch (work) {
    case Work::kMemcpy:
      std::memcpy(a.values(a.stored, c).data(), sources[0].data(), sources[0].size());
      return true;
    case Work::kEncode:
      return codec.encode(format, DataType::kFloat32, sources[0], part.wire);
    case Work::kEncodeBf16:
      return codec.encode(format, DataType::kBfloat16, a.values(a.members[0], c, 2), part.wire);
    case Work::kDecode:
      return codec.decode(format, DataType::kFloat32, a.wire(0, c), a.values(a.stored, c));
    case Work::kAdd:
      return codec.add_decoded(format, a.wire(0, c), a.values(a.stored, c));
    case Work::kEncodeAndStore:
      part.stored = a.values(a.stored, c);
      return codec.make_part(part);
    case Work::kMembers:
      for (std::size_t s = 0; s < kSources; ++s) sources[s] = a.values(a.members[s], c);
      part.members = sources;
      return codec.make_part(part);
    case Work::kResidual:
      part.residual_in = a.values(a.residual_in, c);
      part.residual_out = a.values(a.residual_out, c);
      return codec.make_part(part);
    case Work::kResult: {
      for (std::size_t s = 0; s < kSources; ++s) sources[s] = a.wire(s, c);
      FormatResult result;
      result.format = format;
      result.count = a.chunk;
      result.parts = sources;
      result.wire = part.wire;
      result.stored = a.values(a.stored, c);
      return codec.make_result(result);
    }
  }
  return false;
}

/// @return gigabytes of one fp32 array a second, over some milliseconds.
double gbytes_per_second(const FormatCodec& codec, WireFormat format, Work work, Arrays& arrays) {
  const std::size_t bytes = arrays.chunk * arrays.chunks * 4;
  const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{32} << 20) / bytes);
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t r = 0; r < repeats; ++r) {
    for (std::size_t c = 0; c < arrays.chunks; ++c) {
      Arrays::require(run_chunk(codec, format, work, arrays, c));
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(repeats * bytes) / seconds.count() / 1e9;
}

void measure(WireFormat format, std::size_t payload, std::size_t elements, const char* where,
             int rounds) {
  Arrays arrays(format, payload, elements);
  std::vector<FormatCodec> codecs;
  for (const FormatIsa isa : kFormatIsas) {
    if (const auto codec = FormatCodec::of(isa)) codecs.push_back(*codec);
  }
  std::vector<std::vector<double>> found(kRows.size() * codecs.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Work work = kRows[i / codecs.size()].work;
      if (work == Work::kEncodeBf16 && !fits(format, DataType::kBfloat16)) continue;
      // Sums must stay numbers, however often they grow.
      if (work == Work::kAdd) std::fill(arrays.stored.begin(), arrays.stored.end(), std::byte{});
      found[i].push_back(gbytes_per_second(codecs[i % codecs.size()], format, work, arrays));
    }
  }
  fmt::print("\n{}, chunks of {} elements in {} bytes, fp32 array of {} KiB, {}\n", name_of(format),
             arrays.chunk, arrays.chunk_wire, arrays.chunk * arrays.chunks * 4 / 1024, where);
  fmt::print("{:28}", "");
  for (const FormatCodec& codec : codecs) fmt::print(" {:>22}", codec.name());
  fmt::print("\n");
  for (std::size_t r = 0; r < kRows.size(); ++r) {
    if (found[r * codecs.size()].empty()) continue;
    fmt::print("{:28}", kRows[r].name);
    for (std::size_t i = 0; i < codecs.size(); ++i) {
      const auto [low, middle, high] = perf::quartiles(found[r * codecs.size() + i]);
      fmt::print(" {:6.1f} ({:5.1f} to {:5.1f})", middle, low, high);
    }
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t payload = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1408;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  if (payload < 260 || payload > 65536 || rounds < 1) {
    fmt::print(stderr, "payload bytes: 260 to 65536; rounds: 1 or more\n");
    return 2;
  }
  fmt::print("{}; GB/s of the fp32 side on one core, median (quartiles) of {} rounds\n",
             perf::cpu_model(), rounds);
  for (const WireFormat format : {WireFormat::kInt8, WireFormat::kBf16}) {
    measure(format, payload, std::size_t{16} << 10, "in L2", rounds);
    measure(format, payload, std::size_t{16} << 20, "in memory", rounds);
  }
  return 0;
}
