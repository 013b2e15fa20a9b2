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
      "drain", "Accept no new group or op, and wait until those under way are done");
  add_target(*command, options->target);
  command->add_flag("--resume", options->resume, "Accept groups and ops again");
  command->callback([options, &action] {
    action = [options] {
      ipc::DrainRequest request;
      request.resume = options->resume ? 1 : 0;
      const auto answer = ask(options->target, ipc::MessageType::kDrain, ipc::bytes_of(request));
      if (!answer) {
        const bool late = answer.error().code == ErrorCode::kTimedOut;
        return complain(answer.error().message +
                        (late ? ": ops are still under way (see gradwire ops); the daemon goes on "
                                "draining"
                              : ""));
      }
      if (options->target.json) {
        fmt::print("{}\n", answer->dump(2));
      } else if (options->resume) {
        fmt::print("running: groups and ops are accepted again\n");
      } else {
        fmt::print("drained: no op is under way; {} groups and {} clients are left\n",
                   field(*answer, "groups"), field(*answer, "clients"));
      }
      return kOk;
    };
  });
}

}  // namespace gradwire::cli
