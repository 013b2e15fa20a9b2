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

json filter_trace(const json& trace, const TraceFilter& filter) {
  json all = elements(trace, "events");
  std::vector<json> events;
  for (json& event : all) {
    const bool of_group =
        filter.group.empty() || field(event, "group_id").starts_with(filter.group);
    const bool of_op = filter.op == 0 || number(event, "op_seq") == static_cast<double>(filter.op);
    if (of_group && of_op) events.push_back(std::move(event));
  }
  std::stable_sort(events.begin(), events.end(), [](const json& a, const json& b) {
    return number(a, "at_ns") < number(b, "at_ns");
  });
  const std::size_t cut =
      filter.last == 0 || events.size() <= filter.last ? 0 : events.size() - filter.last;
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(cut));
  json out = trace.is_object() ? trace : json::object();
  out["events"] = std::move(events);
  out["left_out"] = cut;
  return out;
}

std::string trace_text(const json& trace) {
  const json events = elements(trace, "events");
  const double now_ns = number(trace, "now_ns");
  Table table({"AGO s", "GROUP", "LANE", "OP", "EVENT", "WHAT"});
  for (const json& event : events) {
    const std::string type = field(event, "event");
    std::string what;
    if (type == "posted") {
      what = fmt::format("{} of {} bytes", field(event, "collective"), field(event, "value"));
      if (event.contains("wire")) what += fmt::format(" as {}", field(event, "wire"));
    }
    if (type == "done") {
      what = fmt::format("by {}, {} retransmissions", field(event, "shape"), field(event, "value"));
    }
    if (type == "aborted") what = field(event, "reason");
    table.add({fmt::format("{:.6f}", (now_ns - number(event, "at_ns")) / 1e9),
               field(event, "group_id"), field(event, "lane"), field(event, "op_seq"), type, what});
  }
  std::string out =
      table.empty() ? "no op was posted yet, or none matches --group and --op\n" : table.text();
  if (number(trace, "left_out") > 0) {
    out += fmt::format("{} older events are not shown: --last 0 shows all\n",
                       field(trace, "left_out"));
  }
  return out;
}

namespace {

/// How many events the text shows by default: a few screens.
constexpr std::uint64_t kLastEvents = 100;

int write_perfetto(const json& trace, const std::string& path) {
  const json converted = perfetto_of(trace);
  std::ofstream file(path, std::ios::trunc);
  file << converted.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  file.close();
  if (!file)
    return complain(fmt::format("{} could not be written: {}", path, std::strerror(errno)));
  fmt::print("{} events in {}: open it in ui.perfetto.dev or chrome://tracing\n",
             converted["traceEvents"].size(), path);
  return kOk;
}

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  struct Options {
    Target target;
    std::string perfetto;
    TraceFilter filter;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "trace", "The last ops: when each was posted, got its first chunk, was done or aborted");
  add_target(*command, options->target);
  command
      ->add_option("--perfetto", options->perfetto,
                   "Write the events to FILE for Perfetto or chrome://tracing")
      ->option_text("FILE");
  command->add_option("--last", options->filter.last,
                      fmt::format("How many of the last events to show, 0: all; default {}, or all "
                                  "with --json or --perfetto",
                                  kLastEvents));
  command->add_option("--group", options->filter.group,
                      "Only events of groups whose id begins with this");
  command->add_option("--op", options->filter.op, "Only events of the op with this number");
  command->callback([options, command, &action] {
    const bool whole = options->target.json || !options->perfetto.empty();
    if (command->count("--last") == 0 && !whole) options->filter.last = kLastEvents;
    action = [options] {
      auto trace = ask(options->target, ipc::MessageType::kTrace);
      if (!trace) return complain(trace.error().message);
      trace = filter_trace(*trace, options->filter);
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
