// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One trial of gradwire tune on this host: gradwire-perf with lanes of its own, as a process that
/// is killed when its time is over. One thread; allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/daemon_config.h"
#include "tune_plan.h"

namespace gradwire::cli {

/// The settings that are the same in every trial on this host.
struct TuneHost {
  std::string perf;              ///< the program
  std::vector<std::string> eal;  ///< the EAL's arguments
  config::DaemonConfig config;   ///< ports, UDP port, polling
  std::uint16_t rank = 0;        ///< 0: the end that decides what is tried
};

/// The settings that both ends share; rank 0 sends them.
struct TuneRound {
  std::uint32_t epoch = 0;
  std::string rendezvous;  ///< tcp://ADDRESS:PORT
  std::uint64_t bytes = std::uint64_t{16} << 20;
  std::uint32_t iterations = 10;
  double seconds = 20;  ///< after that the processes are killed
};

/// The arguments of gradwire-perf, which writes its figures to `json`.
[[nodiscard]] std::vector<std::string> perf_arguments(const TuneHost& host, const TuneRound& round,
                                                      const TuneSettings& settings,
                                                      const std::string& json);

/// @return the figures, or a trial with its error. Takes round.seconds and one more at most.
[[nodiscard]] TuneTrial run_trial(const TuneHost& host, const TuneRound& round,
                                  const std::string& step, const TuneSettings& settings);

/// "a  b" is {"a", "b"}: as systemd splits a variable.
[[nodiscard]] std::vector<std::string> split_words(const std::string& text);

}  // namespace gradwire::cli
