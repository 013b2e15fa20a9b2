// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {

using nlohmann::json;

json ops_of(const json& status) { return elements(status, "ops"); }

std::string ops_text(const json& ops) {
  Table table({"GROUP", "OP", "LANE", "BYTES", "POSTED s", "SINCE s", "RETRANS", "WAITS FOR"});
  for (const json& op : ops) {
    std::string text = field(op, "text");
    if (const auto colon = text.find(": "); colon != std::string::npos) text.erase(0, colon + 2);
    table.add({field(op, "group_id"), field(op, "op_seq"), field(op, "lane"), field(op, "bytes"),
               field(op, "posted_s"), field(op, "since_s"), field(op, "retransmissions"), text});
  }
  return table.empty() ? "no op is under way\n" : table.text();
}

void add_ops(CLI::App& app, Action& action) {
  add_view(app, action, "ops",
           "The oldest unfinished op of each group and lane: who waits for whom",
           {ops_of, ops_text});
}

}  // namespace gradwire::cli
