// SPDX-License-Identifier: BSD-3-Clause
// gradwire-sim: the ring under faults, in virtual time. Exceptions of libraries end here.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "campaign.h"
#include "eal.h"
#include "ipc/standard_descriptors.h"
#include "measure.h"
#include "options.h"

namespace gradwire::sim {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr std::uint32_t kMemoryMb = 1024;
/// Beyond 64 ranks, for each: what its pools take with large payloads.
constexpr std::uint32_t kMemoryMbOfRank = 12;
constexpr std::uint32_t kMeasureMemoryMb = 3072;

int complain(const std::string& text, int status) {
  fmt::print(stderr, "gradwire-sim: {}\n", text);
  return status;
}

int main_with(int argc, char** argv) {
  const auto options = parse_command_line(argc, argv);
  if (!options) return complain(options.error().message, kUsage);
  if (options->finished) return kOk;
  const std::uint32_t memory_mb = options->measure.empty()
                                      ? std::max(kMemoryMb, kMemoryMbOfRank * options->ranks)
                                      : kMeasureMemoryMb;
  if (auto started = start_eal(memory_mb); !started) {
    return complain(started.error().message, kFailed);
  }
  bool good = true;
  if (options->measure.empty()) {
    good = run_campaign(*options);
  } else {
    const auto measured = run_measurement(*options);
    if (!measured) return complain(measured.error().message, kUsage);
    good = *measured;
  }
  end_eal();
  return good ? kOk : kFailed;
}

}  // namespace
}  // namespace gradwire::sim

int main(int argc, char** argv) {
  if (!gradwire::ipc::open_standard_descriptors()) return 1;
  try {
    return gradwire::sim::main_with(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradwire-sim: {}\n", error.what());
    return gradwire::sim::kFailed;
  }
}
