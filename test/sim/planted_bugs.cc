// SPDX-License-Identifier: BSD-3-Clause
// Does the simulator find bugs? A bug is planted in the ring (base/planted_bug.h), and mixed seeds
// run until one fails. planted_bugs BUG [LAST_SEED [PROFILE [FIRST_SEED]]]: exit status 0 if one
// did, 1 if none did. A bug that makes an assertion fail is found, too.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/planted_bug.h"
#include "eal.h"
#include "sim/seeds/seed_run.h"

namespace gradwire {
PlantedBug planted_bug = PlantedBug::kNone;
}

namespace {

using gradwire::PlantedBug;

struct Named {
  const char* name;
  PlantedBug bug;
};
constexpr std::array kBugs = {
    Named{"none", PlantedBug::kNone},
    Named{"skipped-duplicate-check", PlantedBug::kSkippedDuplicateCheck},
    Named{"lying-ack", PlantedBug::kLyingAck},
    Named{"missed-spill", PlantedBug::kMissedSpill},
    Named{"lost-credit-update", PlantedBug::kLostCreditUpdate},
    Named{"early-reuse", PlantedBug::kEarlyReuse},
    Named{"spill-without-grant-holds-back", PlantedBug::kSpillWithoutGrantHoldsBack},
    Named{"descriptor-of-forgotten-op", PlantedBug::kDescriptorOfForgottenOp},
    Named{"fold-starts-at-wrong-rank", PlantedBug::kFoldStartsAtWrongRank},
    Named{"done-before-next-posted", PlantedBug::kDoneBeforeNextPosted},
    Named{"held-not-claimed", PlantedBug::kHeldNotClaimed},
    Named{"credit-never-back", PlantedBug::kCreditNeverBack},
    Named{"posted-word-runs-ahead", PlantedBug::kPostedWordRunsAhead},
    Named{"scratch-freed-before-acknowledged", PlantedBug::kScratchFreedBeforeAcknowledged},
    Named{"told-out-of-order", PlantedBug::kToldOutOfOrder},
    Named{"two-step-in-owners-order", PlantedBug::kTwoStepInOwnersOrder},
    Named{"gathered-in-own-order", PlantedBug::kGatheredInOwnOrder},
    Named{"message-goes-in-part", PlantedBug::kMessageGoesInPart},
    Named{"message-skips-step", PlantedBug::kMessageSkipsStep},
    Named{"fold-in-arrival-order", PlantedBug::kFoldInArrivalOrder},
    Named{"calls-not-compared", PlantedBug::kCallsNotCompared},
    Named{"token-not-checked", PlantedBug::kTokenNotChecked},
    Named{"floor-used-up", PlantedBug::kFloorUsedUp},
    Named{"send-done-when-sent", PlantedBug::kSendDoneWhenSent},
    Named{"waiting-receive-takes-turn", PlantedBug::kWaitingReceiveTakesTurn},
    Named{"pulled-once", PlantedBug::kPulledOnce},
    Named{"numbers-anew-after-move", PlantedBug::kNumbersAnewAfterMove},
    Named{"sealed-under-old-number", PlantedBug::kSealedUnderOldNumber},
    Named{"tag-not-checked", PlantedBug::kTagNotChecked},
    Named{"ping-in-clear", PlantedBug::kPingInClear},
    Named{"answers-from-one-port", PlantedBug::kAnswersFromOnePort},
    Named{"keeps-source-port", PlantedBug::kKeepsSourcePort},
    Named{"late-rank-keeps-window", PlantedBug::kLateRankKeepsWindow},
    Named{"tiles-start-in-any-order", PlantedBug::kTilesStartInAnyOrder},
    Named{"folding-host-not-told", PlantedBug::kFoldingHostNotTold},
    Named{"tile-post-not-told", PlantedBug::kTilePostNotTold},
    Named{"result-freed-early", PlantedBug::kResultFreedEarly},
    Named{"result-place-freed-early", PlantedBug::kResultPlaceFreedEarly},
    Named{"tile-done-told-once", PlantedBug::kTileDoneToldOnce},
    Named{"tile-not-entered-again", PlantedBug::kTileNotEnteredAgain},
    Named{"tile-late-part", PlantedBug::kTileLatePart},
    Named{"residual-added-twice", PlantedBug::kResidualAddedTwice},
    Named{"tile-folded-in-own-order", PlantedBug::kTileFoldedInOwnOrder},
    Named{"piece-of-other-transfer", PlantedBug::kPieceOfOtherTransfer},
    Named{"room-told-as-size", PlantedBug::kRoomToldAsSize},
};

/// Written before each seed, for the handler, which may do next to nothing.
std::array<char, 96> found_by_assertion{};

void on_abort(int) {
  [[maybe_unused]] const auto written =
      write(STDOUT_FILENO, found_by_assertion.data(), std::strlen(found_by_assertion.data()));
  _exit(0);
}

int run(const char* name, std::uint64_t seeds, const char* profile, std::uint64_t first) {
  for (const Named& each : kBugs) {
    if (std::strcmp(each.name, name) != 0) continue;
    gradwire::planted_bug = each.bug;
  }
  if (gradwire::planted_bug == PlantedBug::kNone && std::strcmp(name, "none") != 0) {
    fmt::print(stderr, "planted_bugs: no bug is called '{}'\n", name);
    return 2;
  }
  std::signal(SIGABRT, on_abort);
  for (std::uint64_t seed = first; seed <= seeds; ++seed) {
    fmt::format_to_n(found_by_assertion.data(), found_by_assertion.size() - 1,
                     "{}: found at seed {}, by an assertion\n", name, seed);
    const auto scenario = gradwire::sim::make_scenario(seed, profile, 0);
    if (!scenario) {
      fmt::print(stderr, "planted_bugs: {}\n", scenario.error().message);
      return 2;
    }
    gradwire::sim::Trace trace;
    const gradwire::sim::SeedResult result = gradwire::sim::run_scenario(*scenario, trace);
    if (result.failure.empty()) continue;
    fmt::print("{}: found at seed {}, {}\n", name, seed, result.failure);
    return 0;
  }
  fmt::print("{}: not found in {} seeds\n", name, seeds);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: planted_bugs BUG [LAST_SEED [PROFILE [FIRST_SEED]]]\n");
    return 2;
  }
  try {
    if (auto started = gradwire::sim::start_eal(1024); !started) {
      fmt::print(stderr, "planted_bugs: {}\n", started.error().message);
      return 2;
    }
    return run(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000,
               argc > 3 ? argv[3] : "mixed", argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1);
  } catch (const std::exception& error) {
    fmt::print(stderr, "planted_bugs: {}\n", error.what());
    return 2;
  }
}
