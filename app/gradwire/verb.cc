// SPDX-License-Identifier: BSD-3-Clause
#include "verb.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "base/defaults.h"
#include "client/control_socket.h"

namespace gradwire::cli {

void add_target(CLI::App& command, Target& target) {
  command.add_flag("--json", target.json, "Print the whole answer as JSON");
  command.add_option("--socket", target.socket,
                     fmt::format("The daemon's control socket; default $GRADWIRE_SOCKET, else {}",
                                 defaults::kControlSocket));
  command.add_option("--timeout", target.timeout_s, "How many seconds to wait for the answer")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
}

Result<nlohmann::json> ask(const Target& target, ipc::MessageType type,
                           std::span<const std::byte> body) {
  const std::string path =
      client::resolve_socket_path(target.socket.empty() ? nullptr : target.socket.c_str());
  const auto timeout = std::chrono::duration<double>(target.timeout_s);
  const auto deadline =
      client::Clock::now() + std::chrono::duration_cast<client::Clock::duration>(timeout);
  const auto text = client::daemon_request(path, type, body, deadline);
  if (!text) return tl::unexpected(text.error());
  auto answer = nlohmann::json::parse(*text, nullptr, false);
  if (answer.is_discarded()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the daemon at {} sent {} bytes that are not JSON: use the gradwire of "
                            "the daemon's release",
                            path, text->size()));
  }
  return answer;
}

Result<StatusAnswer> ask_status(const Target& target) {
  auto answer = ask(target, ipc::MessageType::kStatus);
  if (!answer) return tl::unexpected(answer.error());
  StatusAnswer out;
  out.status = *answer;
  const auto missing = status::missing_in(*answer, out.status);
  if (!missing.empty()) {
    fmt::print(stderr,
               "gradwire: the daemon has another release and does not report {}: shown as 0, or as "
               "nothing\n",
               fmt::join(missing, ", "));
  }
  out.json = std::move(*answer);
  return out;
}

int complain(const std::string& text) {
  fmt::print(stderr, "gradwire: {}\n", text);
  return kFailed;
}

void add_view(CLI::App& app, Action& action, const char* name, const char* help, View view) {
  CLI::App* command = app.add_subcommand(name, help);
  auto target = std::make_shared<Target>();
  add_target(*command, *target);
  command->callback([target, view, &action] {
    action = [target, view] {
      const auto answer = ask_status(*target);
      if (!answer) return complain(answer.error().message);
      if (target->json) {
        fmt::print("{}\n", view.pick(answer->json, answer->status).dump(2));
      } else {
        fmt::print("{}", view.text(answer->status));
      }
      return kOk;
    };
  });
}

}  // namespace gradwire::cli
