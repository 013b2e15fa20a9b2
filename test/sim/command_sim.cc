// SPDX-License-Identifier: BSD-3-Clause
// The command lane by seeds (command_world.h). command_sim FIRST LAST [BUG]: with a bug that is
// planted in its sources, exit status 0 if one of the seeds finds it; else if none fails.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "base/planted_bug.h"
#include "command_world.h"
#include "eal.h"

#ifdef GRADWIRE_PLANTED_BUGS
namespace gradwire {
PlantedBug planted_bug = PlantedBug::kNone;
}
#endif

namespace {

using gradwire::PlantedBug;

bool plant([[maybe_unused]] std::string_view name) {
#ifdef GRADWIRE_PLANTED_BUGS
  struct Named {
    std::string_view name;
    PlantedBug bug;
  };
  constexpr std::array kBugs = {
      Named{"none", PlantedBug::kNone},
      Named{"ends-all-at-once", PlantedBug::kEndsAllAtOnce},
      Named{"reads-every-client", PlantedBug::kReadsEveryClient},
      Named{"chunks-of-other-shape", PlantedBug::kChunksOfOtherShape},
      Named{"looks-at-all-memories", PlantedBug::kLooksAtAllMemories},
      Named{"output-not-held", PlantedBug::kOutputNotHeld},
      Named{"one-lane-is-enough", PlantedBug::kOneLaneIsEnough},
  };
  for (const Named& each : kBugs) {
    if (each.name != name) continue;
    gradwire::planted_bug = each.bug;
    return true;
  }
#endif
  return false;
}

int run(std::uint64_t first, std::uint64_t last, bool planted) {
  gradwire::sim::CommandWorld::Counts sum;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    gradwire::sim::CommandWorld world(seed);
    const std::string failure = world.run();
    if (!failure.empty()) {
      fmt::print("seed {} FAILED: {}\n{}replay: command_sim {} {}\n", seed, failure,
                 world.describe(), seed, seed);
      return planted ? 0 : 1;
    }
    sum.rounds += world.counts().rounds;
    sum.commands += world.counts().commands;
    sum.done += world.counts().done;
    sum.refused += world.counts().refused;
    sum.aborted += world.counts().aborted;
    sum.most_steps = std::max(sum.most_steps, world.counts().most_steps);
  }
  fmt::print(
      "seeds {} to {}: none failed; {} rounds, {} commands, of which {} were done, {} refused, {} "
      "aborted; at most {} steps in a round\n",
      first, last, sum.rounds, sum.commands, sum.done, sum.refused, sum.aborted, sum.most_steps);
  return planted ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || (argc > 3 && !plant(argv[3]))) {
    fmt::print(stderr, "usage: command_sim FIRST LAST [BUG]\n");
    return 2;
  }
  try {
    if (auto started = gradwire::sim::start_eal(256); !started) {
      fmt::print(stderr, "command_sim: {}\n", started.error().message);
      return 2;
    }
    return run(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10), argc > 3);
  } catch (const std::exception& error) {
    fmt::print(stderr, "command_sim: {}\n", error.what());
    return 2;
  }
}
