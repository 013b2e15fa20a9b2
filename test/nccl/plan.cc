// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "nccl/draw.h"

namespace gradwire::nccl {
namespace {

constexpr std::size_t kKib = 1024;
/// What the slots of all processes may take together.
constexpr std::size_t kMemoryBytesMax = 512 * kKib * kKib;
constexpr std::uint64_t kStepsMax = 600;
constexpr int kCommsOfRound = 16;
constexpr int kConnectionsOfRound = 10'000;
constexpr std::size_t kLargest[] = {16 * kKib, 128 * kKib, 512 * kKib, 1024 * kKib, 4096 * kKib};

bool happens(const std::string& when, Draw& draw, unsigned one_in) {
  const bool drawn = draw.one_in(one_in);
  return when == "always" || (when == "draw" && drawn);
}

std::vector<int> members(int processes, Draw& draw) {
  std::vector<int> ranks(static_cast<std::size_t>(processes));
  std::iota(ranks.begin(), ranks.end(), 0);
  draw.shuffle(ranks);
  if (processes > 2 && draw.one_in(3)) ranks.pop_back();
  return ranks;
}

void add_connection(CommPlan& comm, int channel, int from, int to, int& number) {
  ConnectionPlan plan;
  plan.number = number++;
  plan.comm = comm.number;
  plan.channel = channel;
  plan.from = from;
  plan.to = to;
  comm.connections.push_back(plan);
}

/// Rings, one for each channel; now and then all pairs, as send and receive make them.
void connect_ranks(CommPlan& comm, int channels, bool all_pairs, int& number) {
  const std::size_t n = comm.ranks.size();
  for (int channel = 0; channel < channels; ++channel) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t step = 1; step < (all_pairs ? n : 2); ++step) {
        add_connection(comm, channel, comm.ranks[i], comm.ranks[(i + step) % n], number);
      }
    }
  }
}

void draw_messages(Plan& plan, const Options& options, std::size_t connections, Draw& draw) {
  const auto streams = static_cast<std::size_t>(options.streams);
  const int depth = options.depth > 0 ? options.depth : draw.one_in(4) ? draw.whole(1, 32) : 8;
  const std::size_t slots = 2 * connections * streams * static_cast<std::size_t>(depth);
  std::size_t fitting = 0;
  while (fitting + 1 < std::size(kLargest) && slots * kLargest[fitting + 1] <= kMemoryBytesMax) {
    ++fitting;
  }
  for (CommPlan& comm : plan.comms) {
    for (ConnectionPlan& one : comm.connections) {
      one.depth = depth;
      one.bytes = options.bytes;
      one.bytes_max = options.bytes > 0 ? options.bytes : kLargest[draw.between(0, fitting)];
      one.key = draw.number();
      one.pause_us = options.check && draw.one_in(2) ? 300 : 0;
      one.late_us = options.check && draw.one_in(2) ? 30'000 : 0;
      const double mean = options.bytes > 0 ? static_cast<double>(options.bytes)
                                            : 0.22 * static_cast<double>(one.bytes_max);
      const double share = options.megabytes * 1e6 / static_cast<double>(connections * streams);
      const auto steps = static_cast<std::uint64_t>(share / mean);
      const std::uint64_t most = options.check ? kStepsMax : steps + 1;
      for (std::size_t s = 0; s < streams; ++s) {
        const std::uint64_t about = std::clamp<std::uint64_t>(steps, 4, most);
        one.steps.push_back(s == 0 ? about : draw.between(about / 2, about));
      }
    }
  }
}

}  // namespace

bool takes_part(const CommPlan& comm, int rank) {
  return std::find(comm.ranks.begin(), comm.ranks.end(), rank) != comm.ranks.end();
}

std::uint64_t messages_of(const CommPlan& comm, int rank) {
  std::uint64_t sum = 0;
  for (const ConnectionPlan& one : comm.connections) {
    if (one.from == rank || one.to == rank) {
      sum += std::accumulate(one.steps.begin(), one.steps.end(), std::uint64_t{0});
    }
  }
  return sum;
}

Plan make_plan(const Options& options) {
  Draw draw(mixed(options.seed));
  Plan plan;
  plan.processes = draw.whole(2, 4);
  if (options.processes > 0) plan.processes = options.processes;
  int comms = draw.whole(1, plan.processes == 4 ? 3 : 4);
  if (options.communicators > 0) comms = options.communicators;
  int number = 0;
  for (int c = 0; c < comms; ++c) {
    CommPlan comm;
    comm.number = c;
    comm.seed = draw.number();
    comm.ranks = members(plan.processes, draw);
    int channels = draw.whole(1, comms > 2 ? 4 : 8);
    if (options.channels > 0) channels = options.channels;
    const bool all_pairs = draw.one_in(3) && channels <= 2;
    if (!options.collnet_only) connect_ranks(comm, channels, all_pairs, number);
    if (options.collnet || options.collnet_only) {
      comm.all_reduces = draw.whole(20, 60);
      comm.elements_max = draw.one_in(3) ? 256 * kKib : 20 * kKib;
    }
    if (happens(options.abort, draw, 3) && comm.all_reduces == 0) {
      comm.aborter = comm.ranks[draw.between(0, comm.ranks.size() - 1)];
      comm.abort_after = 0.05 * draw.whole(2, 12);
    }
    plan.comms.push_back(comm);
  }
  if (happens(options.kill, draw, 4)) {
    plan.killed = draw.whole(0, plan.processes - 1);
    plan.killed_after = 0.05 * draw.whole(2, 12);
  }
  if (number > 0) draw_messages(plan, options, static_cast<std::size_t>(number), draw);
  for (int rank = 0; rank < plan.processes; ++rank) {
    plan.exits.push_back(happens(options.exit, draw, 2));
  }
  return plan;
}

Plan make_plan_of_round(const Options& options, int round) {
  Options later = options;
  if (round + 1 < options.rounds) later.kill = later.exit = "never";
  if (round == 0) return make_plan(later);
  later.processes = make_plan(options).processes;
  later.seed = mixed(options.seed, static_cast<std::uint64_t>(round));
  Plan plan = make_plan(later);
  for (CommPlan& comm : plan.comms) {
    comm.number += round * kCommsOfRound;
    for (ConnectionPlan& one : comm.connections) {
      one.comm = comm.number;
      one.number += round * kConnectionsOfRound;
    }
  }
  return plan;
}

Message message(const ConnectionPlan& plan, std::size_t stream, std::uint64_t sequence) {
  Message drawn;
  drawn.key = mixed(mixed(plan.key, stream), sequence);
  Draw draw(drawn.key);
  const std::size_t most = plan.bytes_max;
  const std::uint64_t kind = draw.between(0, 99);
  if (kind < 8) {
    drawn.bytes = 0;
  } else if (kind < 22) {
    drawn.bytes = draw.between(1, 256);
  } else if (kind < 50) {
    drawn.bytes = draw.between(1, std::min<std::size_t>(most, 16 * kKib));
  } else if (kind < 80) {
    drawn.bytes = draw.between(1, most / 2);
  } else {
    drawn.bytes = draw.one_in(3) ? most : draw.between(most / 2, most);
  }
  drawn.posted = draw.one_in(2) ? most : draw.between(drawn.bytes, most);
  drawn.send_offset = draw.one_in(4) ? draw.between(0, kSlotMargin - 1) : 0;
  drawn.recv_offset = draw.one_in(4) ? draw.between(0, kSlotMargin - 1) : 0;
  drawn.own_registration = draw.one_in(4);
  if (plan.bytes > 0) {
    drawn.bytes = plan.bytes;
    drawn.posted = plan.bytes;
    drawn.send_offset = 0;
    drawn.recv_offset = 0;
  }
  return drawn;
}

std::string describe(const Plan& plan) {
  std::size_t connections = 0;
  int aborted = 0;
  int all_reduces = 0;
  for (const CommPlan& comm : plan.comms) {
    connections += comm.connections.size();
    aborted += comm.aborter >= 0 ? 1 : 0;
    all_reduces += comm.all_reduces;
  }
  std::string text = fmt::format("{} processes, {} communicators, {} connections", plan.processes,
                                 plan.comms.size(), connections);
  if (connections > 0) text += fmt::format(", {} deep", plan.comms[0].connections[0].depth);
  if (all_reduces > 0) text += fmt::format(", {} all-reduces", all_reduces);
  if (aborted > 0) text += fmt::format(", {} aborted", aborted);
  if (plan.killed >= 0) text += fmt::format(", rank {} killed", plan.killed);
  const auto exits = std::count(plan.exits.begin(), plan.exits.end(), true);
  if (exits > 0) text += fmt::format(", {} exit without a close", exits);
  return text;
}

}  // namespace gradwire::nccl
