// SPDX-License-Identifier: BSD-3-Clause
#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "config/keys.h"

namespace gradwire::gradwired {
namespace {

constexpr const char* kUsage =
    "gradwired [EAL options] -- [options]\n"
    "\n"
    "The gradwire daemon: sums gradients over Ethernet, bypassing the kernel. EAL options\n"
    "(lcores, memory, devices: see DPDK's guide) go before the two dashes, gradwire's after them:\n"
    "\n"
    "  gradwired --lcores 2@2,3@3 -a 0000:3b:00.0 -- --config /etc/gradwire/gradwired.toml\n"
    "  gradwired --check --config FILE\n";

/// Declares the options that are not configuration keys.
void declare(CLI::App& app, CommandLine& out) {
  app.set_help_flag();  // CLI11's own prints and exits through an exception
  // Configuration keys: lib/config knows them, and suggests one if a key is misspelt.
  app.allow_extras();
  app.add_option("--config,-c", out.config_path, "read the configuration from this TOML file")
      ->option_text("FILE");
  app.add_flag("--check", out.check, "check the configuration, print it and exit");
  app.add_flag("--help,-h", out.show_help, "print this help and exit");
  app.add_flag("--version,-V", out.show_version, "print the version and exit");
}

/// "--section.key value" or "--section.key=value".
Result<std::vector<config::Override>> to_overrides(const std::vector<std::string>& extras) {
  std::vector<config::Override> overrides;
  for (std::size_t i = 0; i < extras.size(); ++i) {
    const std::string& word = extras[i];
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!name.starts_with("--") || name.find('.') == std::string::npos) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "{} is not an option of gradwired (see --help); put options of the EAL before \"--\"",
              word));
    }
    if (equals != std::string::npos) {
      overrides.push_back({name.substr(2), word.substr(equals + 1)});
    } else if (i + 1 < extras.size()) {
      overrides.push_back({name.substr(2), extras[++i]});
    } else {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{}: needs a value", word));
    }
  }
  return overrides;
}

}  // namespace

Result<CommandLine> parse_command_line(std::span<const char* const> arguments) {
  CommandLine out;
  out.program = arguments.empty() ? "gradwired" : arguments.front();
  std::vector<std::string> own(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  const auto dashes = std::find(own.begin(), own.end(), "--");
  if (dashes != own.end()) {
    out.eal_arguments.assign(own.begin(), dashes);
    own.erase(own.begin(), dashes + 1);
  }

  CLI::App app;
  declare(app, out);
  try {
    std::reverse(own.begin(), own.end());  // CLI11 takes its vector from the back
    app.parse(std::move(own));
  } catch (const CLI::Error& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
  auto overrides = to_overrides(app.remaining());
  if (!overrides) return tl::unexpected(overrides.error());
  out.overrides = std::move(*overrides);
  return out;
}

std::string help_text() {
  CommandLine ignored;
  CLI::App app;
  declare(app, ignored);
  std::string options = app.help();
  // Removes CLI11's own usage line, which does not mention the EAL's arguments.
  options.erase(0, options.find("Options:"));
  return fmt::format("{}\n{}\nConfiguration keys, in the file or as flags:\n{}", kUsage, options,
                     config::describe_keys());
}

}  // namespace gradwire::gradwired
