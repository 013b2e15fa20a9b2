// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a run of the player does: drawn from its seed, alike in every process, so that both ends of
/// a message know its bytes without a word. Options fix what they name, the seed draws the rest.
/// Pure functions, which allocate; a plan is read by all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::nccl {

struct Options {
  std::string plugin;  ///< path, or what NCCL_NET_PLUGIN would say
  std::uint64_t seed = 1;
  int highest_version = 12;  ///< of the tables that the played NCCL knows
  int processes = 0;         ///< 0, here and below: drawn
  int communicators = 0;
  int channels = 0;
  int depth = 0;          ///< requests that a channel has under way
  std::size_t bytes = 0;  ///< of each message
  double megabytes = 48;  ///< of all messages together, about
  int streams = 1;        ///< receives that are grouped
  bool collnet = false;
  bool collnet_only = false;
  int rounds = 1;                ///< jobs one after the other; the library is closed between them
  bool check = true;             ///< fill and compare each byte; without it the player measures
  std::string abort = "draw";    ///< of a communicator in the middle: draw, never, always
  std::string kill = "never";    ///< of a process in the middle, likewise
  std::string exit = "never";    ///< of a rank whose part is done, without a close: likewise
  std::string kill_by;           ///< a command that ends what the process stands on, instead of it
  long waits_max = -1;           ///< calls that may wait in the kernel; -1: not counted
  double patience_s = 20;        ///< how long a request may take
  double setup_patience_s = 20;  ///< likewise a connection, and any single call
  double limit_s = 120;          ///< for the run
  std::vector<std::string> environment;  ///< RANK:NAME=VALUE
  std::vector<std::string> namespaces;   ///< RANK:NAME, of the network
  int verbosity = 0;                     ///< 1: the plug-in's warnings; 2: its news as well
};

/// A direction of a channel between two ranks.
struct ConnectionPlan {
  int number = 0;  ///< of all connections of the run
  int comm = 0;
  int channel = 0;
  int from = 0;
  int to = 0;
  int depth = 8;
  std::size_t bytes_max = 0;
  std::size_t bytes = 0;  ///< of each message; 0: drawn
  std::uint64_t key = 0;
  std::vector<std::uint64_t> steps;  ///< messages, by stream: [streams]
  unsigned pause_us = 0;             ///< how long a GPU takes for a step, at most
  unsigned late_us = 0;              ///< how long a rank takes until it connects, at most
};

struct CommPlan {
  int number = 0;
  std::vector<int> ranks;
  std::vector<ConnectionPlan> connections;
  int aborter = -1;        ///< the rank that aborts it; -1: nobody
  double abort_after = 1;  ///< of the aborter's own messages
  int all_reduces = 0;     ///< of CollNet
  std::size_t elements_max = 0;
  std::uint64_t seed = 0;  ///< NCCL's hash of the communicator
};

struct Plan {
  int processes = 0;
  std::vector<CommPlan> comms;
  int killed = -1;
  double killed_after = 1;
  std::vector<bool> exits;  ///< [processes]: ends as soon as its part is done, and closes nothing
};

struct Message {
  std::size_t bytes = 0;
  std::size_t posted = 0;  ///< room of the receive
  std::uint64_t key = 0;
  std::size_t send_offset = 0;  ///< in its slot
  std::size_t recv_offset = 0;
  bool own_registration = false;  ///< of the slot alone, as NCCL does with users' buffers
};

/// Room before and behind a message in its slot.
constexpr std::size_t kSlotMargin = 64;

Plan make_plan(const Options& options);
/// The plan of a later round, with the processes of the first one. Only in the last one somebody
/// may be killed. Numbers of communicators and connections do not meet those of other rounds.
Plan make_plan_of_round(const Options& options, int round);
Message message(const ConnectionPlan& plan, std::size_t stream, std::uint64_t sequence);
/// "3 processes, 2 communicators, ...".
std::string describe(const Plan& plan);
/// Messages that rank sends or receives in comm.
std::uint64_t messages_of(const CommPlan& comm, int rank);
bool takes_part(const CommPlan& comm, int rank);

}  // namespace gradwire::nccl
