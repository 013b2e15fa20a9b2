// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What every verb of the CLI shares. A verb is one file, VERB.cc, with one function add_VERB()
/// that declares its subcommand; it is one line in kVerbs (verbs.h) and one in meson.build. Verbs
/// parse options, ask the daemon and show the answer; the daemon computes what they show. One
/// thread; everything allocates.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/result.h"
#include "ipc/control_messages.h"
#include "status/daemon_status.h"

namespace gradwire::cli {

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

/// What main runs when the command line is parsed; its result is the exit status.
using Action = std::function<int()>;

/// Which daemon to ask, and how to show its answer.
struct Target {
  std::string socket;
  double timeout_s = 5.0;
  bool json = false;
};
/// Declares --socket, --timeout and --json. `target` outlives the parsing.
void add_target(CLI::App& command, Target& target);

/// The daemon's answer to a request without a body, or with `body`.
[[nodiscard]] Result<nlohmann::json> ask(const Target& target, ipc::MessageType type,
                                         std::span<const std::byte> body = {});

/// Prints "gradwire: TEXT" to stderr. @return kFailed.
int complain(const std::string& text);

/// The daemon's status: as JSON, and as a struct.
struct StatusAnswer {
  nlohmann::json json;
  status::DaemonStatus status;
};
/// Warns on stderr about fields that a daemon of another release does not send.
[[nodiscard]] Result<StatusAnswer> ask_status(const Target& target);

/// Asks the daemon, then prints the result of `pick` with --json, and else that of `text`.
struct View {
  nlohmann::json (*pick)(const nlohmann::json& answer, const status::DaemonStatus& status);
  std::string (*text)(const status::DaemonStatus& status);
};
/// Declares a verb that shows a part of the status, and sets `action` if it was called.
void add_view(CLI::App& app, Action& action, const char* name, const char* help, View view);

}  // namespace gradwire::cli
