// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// `gradwire inject`: makes a daemon's ports inject faults. Main thread; exceptions of CLI11 go to
/// the caller.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "ipc/control_messages.h"

namespace gradwire::cli {

struct InjectOptions {
  std::string port;
  bool clear = false;
  FaultSettings faults;
};

/// Declares the verb's own options, which go to `options`.
void add_inject_options(CLI::App& inject, InjectOptions& options);

/// The request for the daemon, or why these options make no sense.
[[nodiscard]] Result<ipc::InjectRequest> inject_request(const InjectOptions& options);

/// A line for each port on which the daemon's answer says that earlier faults ended.
[[nodiscard]] std::string replaced_text(const nlohmann::json& answer);

}  // namespace gradwire::cli
