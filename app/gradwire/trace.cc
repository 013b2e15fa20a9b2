// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {

using nlohmann::json;

std::string trace_text(const json& trace) {
  const json all = elements(trace, "events");
  std::vector<json> events(all.begin(), all.end());
  std::stable_sort(events.begin(), events.end(), [](const json& a, const json& b) {
    return number(a, "at_ns") < number(b, "at_ns");
  });
  const double now_ns = number(trace, "now_ns");
  Table table({"AGO s", "GROUP", "LANE", "OP", "EVENT", "WHAT"});
  for (const json& event : events) {
    const std::string type = field(event, "event");
    std::string what;
    if (type == "posted") what = field(event, "value") + " bytes";
    if (type == "done") what = field(event, "value") + " retransmissions";
    if (type == "aborted") what = field(event, "reason");
    table.add({fmt::format("{:.6f}", (now_ns - number(event, "at_ns")) / 1e9),
               field(event, "group_id"), field(event, "lane"), field(event, "op_seq"), type, what});
  }
  return table.empty() ? "no op was posted yet\n" : table.text();
}

namespace {

int write_perfetto(const json& trace, const std::string& path) {
  const json converted = perfetto_of(trace);
  std::ofstream file(path, std::ios::trunc);
  file << converted.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return complain(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  fmt::print("{} events in {}: open it in ui.perfetto.dev or chrome://tracing\n",
             converted["traceEvents"].size(), path);
  return kOk;
}

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  struct Options {
    Target target;
    std::string perfetto;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("trace", "The last ops: posted, first chunk, done, aborted, and when");
  add_target(*command, options->target);
  command
      ->add_option("--perfetto", options->perfetto,
                   "Write them to FILE for Perfetto or chrome://tracing")
      ->option_text("FILE");
  command->callback([options, &action] {
    action = [options] {
      const auto trace = ask(options->target, ipc::MessageType::kTrace);
      if (!trace) return complain(trace.error().message);
      if (!options->perfetto.empty()) return write_perfetto(*trace, options->perfetto);
      if (options->target.json) {
        fmt::print("{}\n", trace->dump(2));
      } else {
        fmt::print("{}", trace_text(*trace));
      }
      return kOk;
    };
  });
}

}  // namespace gradwire::cli
