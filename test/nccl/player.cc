// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A program that plays NCCL: loads a network plug-in by its symbols, and calls it in the order,
/// and from the threads, that NCCL does (README.md beside it has the facts and where they are
/// from). Everything that happens is drawn from a seed; every byte is checked. Exit 1 with a
/// sentence that says what was wrong, and the command that does the same again.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "nccl/driver.h"
#include "nccl/failure.h"
#include "nccl/plan.h"

namespace gradwire::nccl {
namespace {

void add_options(CLI::App& app, Options& options, std::uint64_t& seeds) {
  app.add_option("plugin", options.plugin, "path of the library, or its name for NCCL")->required();
  app.add_option("--seed", options.seed, "what all conditions are drawn from");
  app.add_option("--seeds", seeds, "as many runs, from --seed on");
  app.add_option("--highest-version", options.highest_version,
                 "of the tables that the played NCCL knows: 8 to 12");
  app.add_option("--processes", options.processes, "2 and more; drawn, as what follows");
  app.add_option("--communicators", options.communicators);
  app.add_option("--channels", options.channels);
  app.add_option("--depth", options.depth, "requests that a channel has under way, to 32")
      ->check(CLI::Range(1, nccl_net::kRequestsMax));
  app.add_option("--bytes", options.bytes, "of each message");
  app.add_option("--megabytes", options.megabytes, "of all messages together, about");
  app.add_option("--streams", options.streams, "receives that are grouped")
      ->check(CLI::Range(1, 8));
  app.add_flag("--collnet", options.collnet, "all-reduces by CollNet, beside the messages");
  app.add_flag("--collnet-only", options.collnet_only, "all-reduces, and no messages");
  app.add_flag("!--measure", options.check, "leave bytes alone, and measure");
  app.add_option("--abort", options.abort, "a communicator in the middle: draw, always, never");
  app.add_option("--kill", options.kill, "a process in the middle: never, draw, always");
  app.add_option("--exit", options.exit,
                 "of each rank, as soon as its part is done, without a close: never, draw, always");
  app.add_option("--kill-by", options.kill_by,
                 "a command that ends the daemon of rank $RANK, instead of the rank itself");
  app.add_option("--rounds", options.rounds, "jobs; the library is closed after each, 4 at most")
      ->check(CLI::Range(1, 4));
  app.add_option("--waits-max", options.waits_max,
                 "calls of isend, irecv and test that may wait in the kernel; costs two system "
                 "calls each");
  app.add_option("--patience", options.patience_s, "seconds that a request may take");
  app.add_option("--setup-patience", options.setup_patience_s,
                 "seconds that a connection may take, and any call");
  app.add_option("--limit", options.limit_s, "seconds that a run may take");
  app.add_option("--environment", options.environment, "RANK:NAME=VALUE, as often as needed");
  app.add_option("--namespace", options.namespaces, "RANK:NAME of its network namespace");
  app.add_flag("-v", options.verbosity, "the plug-in's warnings; twice: its news as well");
}

std::string microseconds(std::uint64_t ns) {
  return fmt::format("{:.0f} us", static_cast<double>(ns) / 1e3);
}

bool is_shown(Call call) {
  return must_not_wait(call) || call == Call::kConnect || call == Call::kAccept;
}

/// "isend 900 calls, p99.9 12 us, longest 80 us": of those that NCCL polls.
std::string describe(const Figures& figures, bool waits) {
  const double bytes = static_cast<double>(figures.bytes);
  std::string text = fmt::format(
      "{} messages, {:.1f} MB, {:.0f} MB/s, CPU {:.2f} s ({:.2f} ns/B), later {}", figures.messages,
      bytes / 1e6, figures.seconds > 0 ? bytes / 1e6 / figures.seconds : 0.0, figures.cpu_seconds,
      bytes > 0 ? figures.cpu_seconds * 1e9 / bytes : 0.0, figures.later);
  if (figures.all_reduces > 0) text += fmt::format(", {} all-reduces", figures.all_reduces);
  for (std::size_t i = 0; i < kCalls; ++i) {
    const CallFigures& call = figures.calls[i];
    if (!is_shown(static_cast<Call>(i)) || call.wall.count() == 0) continue;
    text += fmt::format("; {} p99.9 {}, longest {}", kCallNames[i],
                        microseconds(call.wall.quantile(0.999)), microseconds(call.wall.longest()));
    if (waits) {
      text += fmt::format(" (CPU {}, {}), {} waits", microseconds(call.cpu.quantile(0.999)),
                          microseconds(call.cpu.longest()), call.waits);
    }
  }
  return text;
}

std::string find_waits(const Figures& figures, long most) {
  std::uint64_t waits = 0;
  std::string names;
  for (std::size_t i = 0; i < kCalls; ++i) {
    if (!must_not_wait(static_cast<Call>(i)) || figures.calls[i].waits == 0) continue;
    waits += figures.calls[i].waits;
    names += fmt::format("{}{}() {} times", names.empty() ? "" : ", ", kCallNames[i],
                         figures.calls[i].waits);
  }
  if (most < 0 || waits <= static_cast<std::uint64_t>(most)) return "";
  return fmt::format("calls waited in the kernel, {} may: {}", most, names);
}

/// The command that plays the seed again.
void print_again(int argc, char** argv, std::uint64_t seed) {
  fmt::print("again:");
  for (int a = 0; a < argc; ++a) {
    const std::string argument = argv[a];
    if (argument.rfind("--seed", 0) != 0) {
      fmt::print(" {}", argument);
    } else if (argument.find('=') == std::string::npos) {
      ++a;
    }
  }
  fmt::print(" --seed {}\n", seed);
}

/// @return whether it passed.
bool play(const Options& options) {
  const Plan plan = make_plan_of_round(options, 0);
  Driver driver(options, plan);
  std::string failure = driver.run();
  const Figures figures = driver.figures();
  if (failure.empty()) failure = find_waits(figures, options.waits_max);
  const std::string head = fmt::format("seed {}: {}", options.seed, describe(plan));
  if (failure.empty()) {
    fmt::print("{}; {}\n", head, describe(figures, options.waits_max >= 0));
  } else {
    fmt::print("{}; FAILED: {}\n", head, failure);
  }
  std::fflush(stdout);
  return failure.empty();
}

}  // namespace
}  // namespace gradwire::nccl

int main(int argc, char** argv) {
  using namespace gradwire::nccl;
  CLI::App app("Plays NCCL with a network plug-in.");
  Options options;
  std::uint64_t seeds = 1;
  add_options(app, options, seeds);
  CLI11_PARSE(app, argc, argv);
  try {
    const std::uint64_t first = options.seed;
    for (std::uint64_t i = 0; i < seeds; ++i) {
      options.seed = first + i;
      if (play(options)) continue;
      print_again(argc, argv, options.seed);
      return 1;
    }
  } catch (const std::exception& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    return 1;
  }
  return 0;
}
