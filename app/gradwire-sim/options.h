// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The command line of gradwire-sim. CLI11's exceptions end here. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace gradwire::sim {

struct Options {
  std::uint16_t ranks = 0;  ///< 0: 2 to 16 by the seed
  std::uint64_t first_seed = 1;
  std::uint64_t last_seed = 100;
  std::string profile = "mixed";
  std::string measure;                 ///< empty: seeds are run
  std::uint64_t bytes = 0;             ///< size of a measured op; 0: the measurement's default
  std::string controller;              ///< of --measure scale; empty: each in turn
  std::uint64_t swift_target_us = 30;  ///< of --measure scale
  std::uint64_t packet_ns = 250;       ///< of --measure shapes, of an endpoint for each packet
  std::uint64_t hop_ns = 5'000;        ///< likewise, from wire to wire
  bool tiles = false;  ///< of --measure shapes: by tiles, and nothing else that is off the ring
  std::uint64_t two_step_kib = 0;  ///< of --measure shapes: transport.two_step_kib; 0: as it is
  std::uint16_t folding = 0;       ///< likewise: hosts that only sum beside the ranks
  std::uint64_t owners = 0;        ///< likewise: ranks that sum ops in two steps; 0: all
  std::uint32_t rx_descriptors = 1'024;  ///< likewise, of each host's receive ring
  double loss = 0;                       ///< likewise, of packets; once the group has formed
  std::string collective;                ///< likewise; empty: each in turn
  bool trace = false;
  bool keep_going = false;
  bool sealed = false;    ///< only seeds whose packets are sealed
  double progress_s = 0;  ///< prints a line every so many seconds; 0: none
  bool finished = false;  ///< help or version was shown
};

[[nodiscard]] Result<Options> parse_command_line(int argc, const char* const* argv);
/// "A..B" or "A". Both included.
[[nodiscard]] Result<void> parse_seeds(const std::string& text, Options& options);

}  // namespace gradwire::sim
