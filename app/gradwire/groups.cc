// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {

using nlohmann::json;

std::string state_of(const json& group) {
  const bool aborted =
      group.is_object() && group.contains("aborted") && group["aborted"].is_string();
  const std::string state = field(group, "state");
  return aborted && state == "formed" ? "aborted" : state;
}

std::string rtt_of(const json& shard) {
  // A sample is never 0: until the first one, the smoothed value is the initial guess.
  const bool measured =
      !shard.is_object() || !shard.contains("latest_rtt_us") || number(shard, "latest_rtt_us") > 0;
  return measured ? field(shard, "smoothed_rtt_us") : "-";
}

json groups_of(const json& status) { return elements(status, "groups"); }

std::string groups_text(const json& groups) {
  Table table({"GROUP", "EPOCH", "RANK", "STATE", "FOR s", "MEMBERS", "LANES", "PAYLOAD", "POSTED",
               "DONE", "RTT us"});
  std::string below;
  for (const json& group : groups) {
    const json shards = elements(group, "shards");
    const json shard = shards.empty() ? json::object() : shards.front();
    table.add({field(group, "group_id"), field(group, "epoch"),
               fmt::format("{} of {}", field(group, "rank"), field(group, "nranks")),
               state_of(group), field(group, "state_since_s"),
               fmt::format("{}", elements(group, "members").size()), field(group, "lanes"),
               field(group, "payload_bytes"), field(shard, "posted_op_seq"),
               field(shard, "done_op_seq"), rtt_of(shard)});
    if (group.contains("aborted") && group["aborted"].is_string()) {
      below += fmt::format("group {} aborted: {}\n", field(group, "group_id"),
                           text_of(group["aborted"]));
    }
    for (const json& what : elements(group, "waits_for")) {
      below += fmt::format("group {} waits for: {}\n", field(group, "group_id"), text_of(what));
    }
  }
  return table.empty() ? "no group\n" : table.text() + below;
}

void add_groups(CLI::App& app, Action& action) {
  add_view(app, action, "groups", "The groups that this daemon has a rank in",
           {groups_of, groups_text});
}

}  // namespace gradwire::cli
