// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Starts the ranks of a played job, carries their words, kills the one that is to be killed, and
/// ends all of them if one fails or time is over. One thread. Allocates.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "nccl/calls.h"
#include "nccl/exchange.h"
#include "nccl/plan.h"

namespace gradwire::nccl {

class Driver {
 public:
  Driver(const Options& options, const Plan& plan);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// @return why it failed, "" if it did not.
  std::string run();
  /// Of all ranks but one that was killed.
  [[nodiscard]] Figures figures() const;

 private:
  struct Process {
    pid_t pid = -1;
    int socket = -1;
    bool ended = false;
  };

  void start(int rank);
  void take_words();
  bool take_word(std::size_t rank);
  void pass_on(const Word& word);
  void look_for_ends();
  void kill_rank(int rank);

  const Options& options_;
  const Plan& plan_;
  std::vector<Process> processes_;
  Figures* shared_ = nullptr;  ///< [processes], mapped
  int killed_ = -1;
  std::string failure_;
};

}  // namespace gradwire::nccl
