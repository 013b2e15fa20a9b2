// SPDX-License-Identifier: BSD-3-Clause
// The operator's command line. Exceptions of libraries end here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "client/version.h"
#include "verbs.h"

namespace gradwire::cli {
namespace {

int run(int argc, char** argv) {
  CLI::App app("Operates a gradwire daemon.", "gradwire");
  app.set_version_flag("--version", "gradwire " GRADWIRE_VERSION);
  app.require_subcommand(1);
  Action action;
  for (const AddVerb add : kVerbs) add(app, action);
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
  try {
    return gradwire::cli::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradwire: {}\n", error.what());
    return gradwire::cli::kFailed;
  }
}
