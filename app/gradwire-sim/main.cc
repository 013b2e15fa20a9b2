// SPDX-License-Identifier: BSD-3-Clause
// gradwire-sim: the ring under faults, in virtual time. Exceptions of libraries end here.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "campaign.h"
#include "eal.h"
#include "options.h"

namespace gradwire::sim {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr std::uint32_t kMemoryMb = 1024;

int complain(const std::string& text, int status) {
  fmt::print(stderr, "gradwire-sim: {}\n", text);
  return status;
}

int main_with(int argc, char** argv) {
  const auto options = parse_command_line(argc, argv);
  if (!options) return complain(options.error().message, kUsage);
  if (options->finished) return kOk;
  if (auto started = start_eal(kMemoryMb); !started) {
    return complain(started.error().message, kFailed);
  }
  const bool good = run_campaign(*options);
  end_eal();
  return good ? kOk : kFailed;
}

}  // namespace
}  // namespace gradwire::sim

int main(int argc, char** argv) {
  try {
    return gradwire::sim::main_with(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradwire-sim: {}\n", error.what());
    return gradwire::sim::kFailed;
  }
}
