// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The table of verbs: see verb.h.
#pragma once

#include "verb.h"

namespace gradwire::cli {

/// Declares the verb's subcommand; if the user called it, sets `action` to what it does.
using AddVerb = void (*)(CLI::App& app, Action& action);

void add_counters(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_drain(CLI::App& app, Action& action);
void add_groups(CLI::App& app, Action& action);
void add_inject(CLI::App& app, Action& action);
void add_key(CLI::App& app, Action& action);
void add_ops(CLI::App& app, Action& action);
void add_ports(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_top(CLI::App& app, Action& action);
void add_trace(CLI::App& app, Action& action);
void add_tune(CLI::App& app, Action& action);

/// In the order of --help.
inline constexpr AddVerb kVerbs[] = {
    add_status, add_top,   add_groups, add_ops,    add_ports, add_counters,
    add_trace,  add_drain, add_doctor, add_inject, add_tune,  add_key,
};

}  // namespace gradwire::cli
