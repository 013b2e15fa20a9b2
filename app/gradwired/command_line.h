// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The daemon's command line: EAL options, two dashes, gradwire's options. Main thread, before
/// anything else; allocates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/load.h"

namespace gradwire::gradwired {

struct CommandLine {
  std::string program;
  std::vector<std::string> eal_arguments;  ///< the arguments before "--", without the program
  std::string config_path;                 ///< "": no file, only flags
  std::vector<config::Override> overrides;
  bool check = false;
  bool show_help = false;
  bool show_version = false;
};

/// Without "--" all arguments are gradwire's.
[[nodiscard]] Result<CommandLine> parse_command_line(std::span<const char* const> arguments);

[[nodiscard]] std::string help_text();

}  // namespace gradwire::gradwired
