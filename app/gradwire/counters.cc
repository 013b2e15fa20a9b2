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

json counters_of(const json& status) {
  json out = json::object();
  for (const json& lane : elements(status, "lanes")) {
    flatten(out, "lane." + field(lane, "lane"), section(lane, "counters"));
  }
  for (const json& port : elements(status, "ports")) {
    flatten(out, "port." + field(port, "device"), section(port, "counters"));
  }
  for (const json& group : elements(status, "groups")) {
    for (const json& shard : elements(group, "shards")) {
      const std::string prefix = fmt::format("group.{}.{}.lane.{}", field(group, "group_id"),
                                             field(group, "epoch"), field(shard, "lane"));
      flatten(out, prefix, section(shard, "counters"));
    }
  }
  return out;
}

std::string counters_text(const json& counters) {
  std::string out;
  std::size_t zero = 0;
  for (const auto& [name, value] : counters.items()) {
    if (value == 0) {
      ++zero;
    } else {
      out += fmt::format("{} {}\n", name, text_of(value));
    }
  }
  out += fmt::format("({} more are zero; --json shows them)\n", zero);
  return out;
}

void add_counters(CLI::App& app, Action& action) {
  add_view(app, action, "counters", "Every counter that is not zero, a line each",
           {counters_of, counters_text});
}

}  // namespace gradwire::cli
