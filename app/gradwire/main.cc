// SPDX-License-Identifier: BSD-3-Clause
// The operator's command line. Exceptions of libraries end here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "client/version.h"
#include "config/nearest.h"
#include "ipc/standard_descriptors.h"
#include "verbs.h"

namespace gradwire::cli {
namespace {

/// @return what is wrong with that first word; empty if it is a verb.
std::string unknown_verb(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_name() == word) return {};
    names.push_back(verb->get_name());
  }
  const std::string close = config::nearest(word, names);
  return fmt::format("unknown command \"{}\"{} (gradwire --help lists all)", word,
                     close.empty() ? "" : fmt::format(": did you mean \"{}\"?", close));
}

int run(int argc, char** argv) {
  CLI::App app("Inspects and operates a gradwire daemon.", "gradwire");
  app.set_version_flag("--version", "gradwire " GRADWIRE_VERSION);
  app.require_subcommand(1);
  Action action;
  for (const AddVerb add : kVerbs) add(app, action);
  // CLI11's own error does not say which word was wrong.
  if (argc > 1 && argv[1][0] != '-') {
    if (const std::string wrong = unknown_verb(app, argv[1]); !wrong.empty()) {
      fmt::print(stderr, "gradwire: {}\n", wrong);
      return kUsage;
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return action();
}

}  // namespace
}  // namespace gradwire::cli

int main(int argc, char** argv) {
  if (!gradwire::ipc::open_standard_descriptors()) return 1;
  try {
    return gradwire::cli::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradwire: {}\n", error.what());
    return gradwire::cli::kFailed;
  }
}
