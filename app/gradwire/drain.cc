// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <memory>

#include "table.h"
#include "verbs.h"

namespace gradwire::cli {

void add_drain(CLI::App& app, Action& action) {
  struct Options {
    Target target;
    bool resume = false;
  };
  auto options = std::make_shared<Options>();
  options->target.timeout_s = 60;
  CLI::App* command = app.add_subcommand(
      "drain", "Refuse new groups and ops, and wait until the ops in progress are done");
  add_target(*command, options->target);
  command->add_flag("--resume", options->resume, "Accept new groups and ops again");
  command->callback([options, &action] {
    action = [options] {
      ipc::DrainRequest request;
      request.resume = options->resume ? 1 : 0;
      const auto answer = ask(options->target, ipc::MessageType::kDrain, ipc::bytes_of(request));
      if (!answer) {
        const bool late = answer.error().code == ErrorCode::kTimedOut;
        return complain(
            answer.error().message +
            (late ? ": ops are still in progress (see gradwire ops); the daemon keeps draining"
                  : ""));
      }
      if (options->target.json) {
        fmt::print("{}\n", answer->dump(2));
      } else if (options->resume) {
        fmt::print("running: groups and ops are accepted again\n");
      } else {
        fmt::print("drained: no op is in progress; {} groups and {} clients are left\n",
                   field(*answer, "groups"), field(*answer, "clients"));
      }
      return kOk;
    };
  });
}

}  // namespace gradwire::cli
