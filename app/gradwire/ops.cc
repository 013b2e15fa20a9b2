// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {

std::string ops_text(const std::vector<status::Op>& ops) {
  Table table({"GROUP", "OP", "COLLECTIVE", "SHAPE", "LANE", "BYTES", "POSTED s", "SINCE s",
               "RETRANS", "WAITS FOR"});
  const auto seconds = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.3f}", *value) : "?";
  };
  for (const status::Op& op : ops) {
    std::string text = op.text;
    if (const auto colon = text.find(": "); colon != std::string::npos) text.erase(0, colon + 2);
    std::string what = op.collective;
    if (op.wire != "same") what += fmt::format(" as {}", op.wire);
    table.add({op.group_id, std::to_string(op.op_seq), what, op.shape, std::to_string(op.lane),
               std::to_string(op.bytes), seconds(op.posted_s), seconds(op.since_s),
               std::to_string(op.retransmissions), text});
  }
  return table.empty() ? "no op is in progress\n" : table.text();
}

void add_ops(CLI::App& app, Action& action) {
  add_view(app, action, "ops",
           "The oldest unfinished op of each group and lane, and what it waits for",
           {[](const nlohmann::json& answer, const status::DaemonStatus&) {
              return elements(answer, "ops");
            },
            [](const status::DaemonStatus& status) { return ops_text(status.ops); }});
}

}  // namespace gradwire::cli
