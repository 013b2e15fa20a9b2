// SPDX-License-Identifier: BSD-3-Clause
// The trace-event format of Chromium, which Perfetto and chrome://tracing open: "b", "n" and "e"
// are the beginning, a moment and the end of something that may overlap others, matched by id;
// times are microseconds.
#include <fmt/format.h>

#include <map>
#include <string>
#include <tuple>

#include "table.h"
#include "views.h"

namespace gradwire::cli {

using nlohmann::json;

namespace {

/// An op on one lane of one rank.
using OpKey = std::tuple<std::string, double, double, double>;
struct OpEvents {
  json posted, first_chunk, done, aborted;
};

json base_event(const json& trace, const json& event, double begin_ns, const char* phase) {
  return {{"ph", phase},
          {"pid", trace.value("pid", 0)},
          {"tid", event.value("lane", 0)},
          {"ts", (number(event, "at_ns") - begin_ns) / 1e3}};
}

void add_op(json& out, const json& trace, const OpEvents& op, double begin_ns, double end_ns) {
  const json& any = !op.posted.is_null() ? op.posted : op.done;
  if (any.is_null()) return;  // only an abort, which is shown below
  const std::string name = fmt::format("op {}", field(any, "op_seq"));
  const std::string id =
      fmt::format("{}.{}.{}.{}.{}", field(trace, "incarnation"), field(any, "group_id"),
                  field(any, "epoch"), field(any, "lane"), field(any, "op_seq"));
  const auto add = [&](const json& event, const char* phase, const std::string& what, json args) {
    json entry = base_event(trace, event, begin_ns, phase);
    entry["cat"] = "op";
    entry["id"] = id;
    entry["name"] = what;
    entry["args"] = std::move(args);
    out.push_back(std::move(entry));
  };
  json args = {{"group", field(any, "group_id")}, {"epoch", field(any, "epoch")},
               {"rank", field(any, "rank")},      {"nranks", field(any, "nranks")},
               {"lane", field(any, "lane")},      {"collective", field(any, "collective")}};
  if (any.contains("wire")) args["wire"] = field(any, "wire");
  if (op.posted.is_null()) {
    args["posted"] = "before the trace begins";
  } else {
    args["bytes"] = number(op.posted, "value");
  }
  json begin = any;
  if (op.posted.is_null()) begin["at_ns"] = begin_ns;  // older than the trace
  add(begin, "b", name, args);
  if (!op.first_chunk.is_null()) add(op.first_chunk, "n", "first chunk", json::object());
  if (!op.done.is_null()) {
    add(op.done, "e", name, {{"retransmissions", number(op.done, "value")}});
  } else {
    json end = any;
    end["at_ns"] = op.aborted.is_null() ? json(end_ns) : op.aborted["at_ns"];
    const char* how = op.aborted.is_null() ? "unfinished" : "aborted";
    add(end, "e", name, {{"end", how}, {"reason", field(op.aborted, "reason")}});
  }
}

}  // namespace

json perfetto_of(const json& trace) {
  json events = json::array();
  const json pid = trace.is_object() ? trace.value("pid", json(0)) : json(0);
  std::map<OpKey, OpEvents> ops;
  double begin_ns = number(trace, "now_ns");
  for (const json& event : elements(trace, "events")) {
    begin_ns = std::min(begin_ns, number(event, "at_ns"));
  }
  std::map<std::tuple<std::string, double, double>, json> aborts;  // by group, epoch and lane
  for (const json& event : elements(trace, "events")) {
    const std::string type = field(event, "event");
    const std::string group = field(event, "group_id");
    const double epoch = number(event, "epoch");
    const double lane = number(event, "lane");
    OpEvents& op = ops[{group, epoch, lane, number(event, "op_seq")}];
    if (type == "posted") op.posted = event;
    if (type == "first_chunk") op.first_chunk = event;
    if (type == "done") op.done = event;
    if (type != "aborted") continue;
    aborts[{group, epoch, lane}] = event;
    json instant = base_event(trace, event, begin_ns, "i");
    instant["s"] = "t";
    instant["cat"] = "abort";
    instant["name"] = "group aborted";
    instant["args"] = {{"reason", field(event, "reason")}, {"group", group}};
    events.push_back(std::move(instant));
  }
  for (auto& [key, op] : ops) {
    // The abort ended every unfinished op.
    const auto abort = aborts.find({std::get<0>(key), std::get<1>(key), std::get<2>(key)});
    if (abort != aborts.end() && op.done.is_null()) op.aborted = abort->second;
    add_op(events, trace, op, begin_ns, number(trace, "now_ns"));
  }
  events.push_back({{"ph", "M"},
                    {"pid", pid},
                    {"name", "process_name"},
                    {"args", {{"name", fmt::format("gradwired {}", text_of(pid))}}}});
  for (int lane = 0; lane < static_cast<int>(number(trace, "lanes")); ++lane) {
    events.push_back({{"ph", "M"},
                      {"pid", pid},
                      {"tid", lane},
                      {"name", "thread_name"},
                      {"args", {{"name", fmt::format("lane {}", lane)}}}});
  }
  const double unix_begin_ns = number(trace, "unix_now_ns") - (number(trace, "now_ns") - begin_ns);
  return {{"traceEvents", std::move(events)},
          {"displayTimeUnit", "ns"},
          {"otherData", {{"begins_at_unix_s", fmt::format("{:.6f}", unix_begin_ns / 1e9)}}}};
}

}  // namespace gradwire::cli
