// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/rank.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "nccl/communicator.h"
#include "nccl/exchange.h"
#include "nccl/failure.h"
#include "nccl/library.h"

namespace gradwire::nccl {
namespace {

constexpr unsigned kWatchUs = 2'000;
constexpr unsigned kFailedWaitS = 20;

/// The text behind "RANK:" of those options that are this rank's.
std::vector<std::string> own(const std::vector<std::string>& texts, int rank) {
  std::vector<std::string> found;
  const std::string start = std::to_string(rank) + ":";
  for (const std::string& text : texts) {
    if (text.rfind(start, 0) == 0) found.push_back(text.substr(start.size()));
  }
  return found;
}

void enter_place(const Options& options, int rank) {
  for (const std::string& setting : own(options.environment, rank)) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) throw Failure("--environment " + setting + " has no '='");
    setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
  }
  for (const std::string& name : own(options.namespaces, rank)) {
    const int fd = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) throw Failure("no network namespace " + name);
    close(fd);
  }
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void add_up(const std::vector<std::unique_ptr<Communicator>>& comms, const Host& host,
            Figures& figures) {
  for (const auto& comm : comms) {
    figures.bytes += comm->bytes();
    figures.messages += comm->messages();
    figures.later += comm->later();
    figures.seconds = std::max(figures.seconds, comm->seconds());
  }
  figures.all_reduces += host.all_reduces.load();
}

/// When this rank is to say that it may be killed; never, if it is another that is killed.
std::uint64_t killed_at(const Plan& plan, int rank) {
  if (plan.killed != rank) return ~std::uint64_t{0};
  std::uint64_t all = 0;
  for (const CommPlan& comm : plan.comms) all += messages_of(comm, rank);
  return static_cast<std::uint64_t>(static_cast<double>(all) * plan.killed_after);
}

void play(const Options& options, const Plan& plan, int rank, Exchange& exchange,
          Figures& figures) {
  Library library(options.plugin, options.highest_version);
  Host host{options, plan, rank, library, exchange};
  std::vector<std::unique_ptr<Communicator>> comms;
  for (const CommPlan& comm : plan.comms) {
    if (takes_part(comm, rank)) comms.push_back(std::make_unique<Communicator>(host, comm));
  }
  const std::uint64_t patience_ns = static_cast<std::uint64_t>(options.setup_patience_s * 1e9);
  const std::uint64_t reached_at = killed_at(plan, rank);
  bool reached = false;
  while (!std::all_of(comms.begin(), comms.end(), [](const auto& comm) { return comm->ended(); })) {
    // Who ends without a close does so at once.
    host.exits() ? sched_yield() : usleep(kWatchUs);
    if (!reached && host.messages.load() >= reached_at) {
      reached = true;
      exchange.send(Word::kReached, kToDriver, 0);
    }
    const std::string stuck = call_under_way_for(patience_ns);
    if (!stuck.empty()) throw Failure(stuck);
  }
  add_up(comms, host, figures);
  if (!host.exits()) return;
  figures.cpu_seconds = cpu_seconds();
  add_recorded(figures);
  _exit(0);
}

}  // namespace

int run_rank(const Options& options, int rank, int socket, Figures& figures) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Exchange exchange(socket, rank);
  try {
    enter_place(options, rank);
    set_log_verbosity(options.verbosity, rank);
    if (options.waits_max >= 0) count_waits();
    for (int round = 0; round < options.rounds; ++round) {
      const Plan plan = make_plan_of_round(options, round);
      play(options, plan, rank, exchange, figures);
    }
    figures.cpu_seconds = cpu_seconds();
    add_recorded(figures);
  } catch (const std::exception& failure) {
    exchange.fail(failure.what());
    sleep(kFailedWaitS);  // the driver ends all ranks
    _exit(1);
  }
  return 0;
}

}  // namespace gradwire::nccl
