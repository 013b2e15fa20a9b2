// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How fast one core reduces chunks whose packets and gradients lie in its L2 cache. Prints
/// gigabytes of payload per second, the best of some rounds: others use the machine too. Single
/// thread; takes no arguments but, optionally, the payload's bytes.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "reduce/backend.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;

/// Packets, inputs and outputs together: half of the smallest L2 in use (512 KiB).
constexpr std::size_t kWorkingSetBytes = 256 * 1024;

double payload_gbytes_per_second(Backend& backend, DataType type, RedOp redop, Kind kind,
                                 std::size_t payload_bytes, std::size_t members) {
  // In place, as with a gradient that is reduced into itself.
  const std::size_t arrays = members + 1;
  const std::size_t chunks = std::max<std::size_t>(1, kWorkingSetBytes / (payload_bytes * arrays));
  // Zeros: sums stay numbers however often they are repeated, and speed does not depend on values.
  std::vector<std::byte> packets(chunks * payload_bytes + 64);
  std::vector<std::vector<std::byte>> gradients(members,
                                                std::vector<std::byte>(chunks * payload_bytes));
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (auto& gradient : gradients) {
    inputs.push_back(gradient.data());
    outputs.push_back(gradient.data());
  }
  std::vector<Entry> entries(chunks);
  for (std::size_t i = 0; i < chunks; ++i) {
    Entry& entry = entries[i];
    entry.kind = kind;
    entry.datatype = type;
    entry.redop = redop;
    entry.member_count = static_cast<std::uint16_t>(members);
    entry.divisor = static_cast<std::uint32_t>(2 * members);
    entry.count = static_cast<std::uint32_t>(payload_bytes / element_bytes(type));
    // Behind 42 bytes of Ethernet, IPv4 and UDP and 64 of our header: not aligned.
    entry.packet = packets.data() + 42 + i * payload_bytes;
    entry.inputs = inputs.data();
    entry.outputs = outputs.data();
    entry.offset_bytes = i * payload_bytes;
  }
  std::vector<Completion> done(chunks);
  constexpr int kRounds = 12;
  const std::size_t repeats = (std::size_t{96} << 20) / (chunks * payload_bytes * arrays);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t r = 0; r < repeats; ++r) {
      if (backend.submit(entries) != chunks || backend.poll(done) != chunks || !done[0].ok) {
        fmt::print(stderr, "the backend did not complete its entries\n");
        std::exit(1);
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(repeats * chunks * payload_bytes) / seconds.count());
  }
  return best / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t payload_bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8192;
  if (payload_bytes < 64 || payload_bytes > kWorkingSetBytes || payload_bytes % 64 != 0) {
    fmt::print(stderr, "payload bytes: {} is not a multiple of 64 from 64 to {}\n",
               argc > 1 ? argv[1] : "", kWorkingSetBytes);
    return 2;
  }
  struct Row {
    DataType type;
    RedOp redop;
  };
  constexpr std::array kRows = {
      Row{DataType::kFloat32, RedOp::kSum},  Row{DataType::kFloat32, RedOp::kAvg},
      Row{DataType::kFloat32, RedOp::kMax},  Row{DataType::kFloat64, RedOp::kSum},
      Row{DataType::kFloat16, RedOp::kSum},  Row{DataType::kBfloat16, RedOp::kSum},
      Row{DataType::kBfloat16, RedOp::kAvg}, Row{DataType::kBfloat16, RedOp::kMax},
      Row{DataType::kInt8, RedOp::kSum},     Row{DataType::kInt32, RedOp::kSum},
      Row{DataType::kInt32, RedOp::kAvg},    Row{DataType::kInt64, RedOp::kProd}};
  fmt::print("GB/s of payload per core, {} B payloads, working set in L2\n", payload_bytes);
  fmt::print("{:11} {:5} {:4} {:>10} {:>10} {:>10}\n", "backend", "type", "op", "in packet",
             "and store", "8 members");
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2}) {
    const auto backend = make_cpu_backend(kWorkingSetBytes / 64, isa);
    if (backend == nullptr) {
      continue;  // This CPU has no such instructions.
    }
    for (const Row& row : kRows) {
      const auto measure = [&](Kind kind, std::size_t members) {
        return payload_gbytes_per_second(*backend, row.type, row.redop, kind, payload_bytes,
                                         members);
      };
      fmt::print("{:11} {:5} {:4} {:10.1f} {:10.1f} {:10.1f}\n", backend->name(), name_of(row.type),
                 name_of(row.redop), measure(Kind::kReduceInPacket, 1),
                 measure(Kind::kReduceAndStore, 1), measure(Kind::kReduceInPacket, 8));
    }
  }
  return 0;
}
