// SPDX-License-Identifier: BSD-3-Clause
// The operator's command line. Exceptions of libraries end here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "client/control_socket.h"
#include "client/version.h"
#include "status_text.h"

namespace gradwire::cli {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int complain(const std::string& text) {
  fmt::print(stderr, "gradwire: {}\n", text);
  return kFailed;
}

struct StatusOptions {
  std::string socket;
  double timeout_s = 5.0;
  bool json = false;
};

int show_status(const StatusOptions& options) {
  const std::string path =
      client::resolve_socket_path(options.socket.empty() ? nullptr : options.socket.c_str());
  const auto timeout = std::chrono::duration<double>(options.timeout_s);
  const auto deadline =
      client::Clock::now() + std::chrono::duration_cast<client::Clock::duration>(timeout);
  const auto text = client::daemon_status(path, deadline);
  if (!text) return complain(text.error().message);
  const auto status = nlohmann::json::parse(*text, nullptr, false);
  if (status.is_discarded()) {
    return complain(fmt::format("the daemon at {} answered with {} bytes that are no JSON", path,
                                text->size()));
  }
  if (options.json) {
    fmt::print("{}\n", status.dump(2));
  } else {
    fmt::print("{}", status_text(status));
  }
  return kOk;
}

int run(int argc, char** argv) {
  CLI::App app("Operates a gradwire daemon.", "gradwire");
  app.set_version_flag("--version", "gradwire " GRADWIRE_VERSION);
  app.require_subcommand(1);
  StatusOptions options;
  CLI::App* status = app.add_subcommand("status", "What the daemon does, and who waits for whom");
  status->add_flag("--json", options.json, "All of it, as JSON");
  status->add_option("--socket", options.socket,
                     "The daemon's control socket; default $GRADWIRE_SOCKET, else "
                     "/run/gradwire/gradwired.sock");
  status->add_option("--timeout", options.timeout_s, "Seconds to wait for the answer")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return show_status(options);
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
