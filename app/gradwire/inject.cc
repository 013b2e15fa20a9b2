// SPDX-License-Identifier: BSD-3-Clause
#include "inject.h"

#include <fmt/format.h>

#include <memory>

#include "table.h"
#include "verbs.h"

namespace gradwire::cli {

void add_inject_options(CLI::App& inject, InjectOptions& options) {
  FaultSettings& faults = options.faults;
  inject.add_option("--port", options.port, "Device name of the port; default: every port");
  inject.add_flag("--clear", options.clear, "Stop injecting faults");
  inject.add_option("--drop", faults.drop, "Probability that a received frame is dropped, 0 to 1");
  inject.add_option("--duplicate", faults.duplicate, "Probability that it is duplicated");
  inject.add_option("--reorder", faults.reorder,
                    "Probability that it is delivered after later frames");
  inject
      .add_option("--reorder-frames", faults.reorder_frames,
                  "How many frames may overtake it at most")
      ->capture_default_str();
  inject.add_option("--corrupt", faults.corrupt, "Probability that one of its bits is flipped");
  inject.add_option("--delay", faults.delay, "Probability that it is delayed");
  inject.add_option("--delay-us", faults.delay_us, "By how many microseconds it is delayed")
      ->capture_default_str();
  inject.add_option("--seed", faults.seed, "The same seed gives the same faults")
      ->capture_default_str();
}

Result<ipc::InjectRequest> inject_request(const InjectOptions& options) {
  if (const auto checked = check(options.faults); !checked) return tl::unexpected(checked.error());
  if (options.clear && options.faults.active()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--clear and {} exclude each other: give one of them",
                            describe(options.faults)));
  }
  if (!options.clear && !options.faults.active()) {
    return fail(ErrorCode::kInvalidArgument,
                "nothing to inject: give --drop, --duplicate, --reorder, --corrupt or --delay, or "
                "--clear");
  }
  if (options.port.size() >= ipc::InjectRequest::kDeviceBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--port {}: {} characters, must be at most {}", options.port,
                            options.port.size(), ipc::InjectRequest::kDeviceBytes - 1));
  }
  ipc::InjectRequest request;
  ipc::copy_text(request.device, options.port);
  if (!options.clear) request.faults = options.faults;
  return request;
}

std::string replaced_text(const nlohmann::json& answer) {
  std::string text;
  for (const nlohmann::json& port : answer) {
    if (!port.is_object() || !port.contains("replaced") || !port["replaced"].is_string()) continue;
    text += fmt::format("replaced on port {}: {}\n", field(port, "port"), field(port, "replaced"));
  }
  return text;
}

void add_inject(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "inject",
      "Make ports drop, duplicate, reorder, corrupt or delay received frames, to test recovery");
  struct Options {
    Target target;
    InjectOptions inject;
  };
  auto options = std::make_shared<Options>();
  add_target(*command, options->target);
  add_inject_options(*command, options->inject);
  command->callback([options, &action] {
    action = [options] {
      const auto request = inject_request(options->inject);
      if (!request) {
        complain(request.error().message);
        return kUsage;
      }
      const auto answer = ask(options->target, ipc::MessageType::kInject, ipc::bytes_of(*request));
      if (!answer) return complain(answer.error().message);
      if (options->target.json) {
        fmt::print("{}\n", answer->dump(2));
      } else {
        fmt::print("faults on {}: {}\n",
                   options->inject.port.empty() ? "every port" : "port " + options->inject.port,
                   describe(request->faults));
        fmt::print("{}", replaced_text(*answer));
      }
      return kOk;
    };
  });
}

}  // namespace gradwire::cli
