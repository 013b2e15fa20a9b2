// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {
namespace {

using nlohmann::json;

void flatten(json& out, const std::string& prefix, const json& counters) {
  for (const auto& [name, value] : counters.items()) {
    const std::string path = prefix + "." + name;
    if (value.is_object()) {
      flatten(out, path, value);
    } else if (value.is_number()) {
      out[path] = value;
    }
  }
}

}  // namespace

json counters_of(const status::DaemonStatus& status) {
  json out = json::object();
  for (const status::Lane& lane : status.lanes) {
    const std::string prefix = fmt::format("lane.{}", lane.lane);
    flatten(out, prefix, lane.counters);
    // Of all groups, including those that have ended.
    flatten(out, prefix + ".transport", lane.transport);
  }
  for (const status::Port& port : status.ports) {
    flatten(out, "port." + port.device, port.counters);
  }
  for (const status::Group& group : status.groups) {
    for (const status::Shard& shard : group.shards) {
      flatten(out, fmt::format("group.{}.{}.lane.{}", group.group_id, group.epoch, shard.lane),
              shard.counters);
    }
  }
  return out;
}

std::string counters_text(const status::DaemonStatus& status) {
  std::string out;
  std::size_t zero = 0;
  const json counters = counters_of(status);
  for (const auto& [name, value] : counters.items()) {
    if (value == 0) {
      ++zero;
    } else {
      out += fmt::format("{} {}\n", name, text_of(value));
    }
  }
  out += fmt::format("({} more counters are zero; --json shows them)\n", zero);
  return out;
}

void add_counters(CLI::App& app, Action& action) {
  add_view(app, action, "counters", "Every counter that is not zero, one per line",
           {[](const json&, const status::DaemonStatus& status) { return counters_of(status); },
            counters_text});
}

}  // namespace gradwire::cli
