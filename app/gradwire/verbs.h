// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The table of verbs: see verb.h.
#pragma once

#include "verb.h"

namespace gradwire::cli {

/// Declares the verb's subcommand; where it was called, `action` is what it does.
using AddVerb = void (*)(CLI::App& app, Action& action);

void add_counters(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_groups(CLI::App& app, Action& action);
void add_inject(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);

/// In the order of --help.
inline constexpr AddVerb kVerbs[] = {
    add_status, add_groups, add_counters, add_doctor, add_inject,
};

}  // namespace gradwire::cli
