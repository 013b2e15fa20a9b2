// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "table.h"
#include "verbs.h"
#include "views.h"

namespace gradwire::cli {

std::string state_of(const status::Group& group) {
  return group.aborted && group.state == "formed" ? "aborted" : group.state;
}

std::string rtt_of(const status::Shard& shard) {
  // A sample is never 0: until the first one, the smoothed value is the initial guess.
  return shard.latest_rtt_us > 0 ? fmt::format("{:.3f}", shard.smoothed_rtt_us) : "-";
}

std::string groups_text(const status::DaemonStatus& status) {
  Table table({"GROUP", "EPOCH", "RANK", "STATE", "FOR s", "MEMBERS", "LANES", "PAYLOAD", "POSTED",
               "DONE", "RTT us"});
  std::string below;
  for (const status::Group& group : status.groups) {
    const bool empty = group.shards.empty();
    const status::Shard shard = empty ? status::Shard{} : group.shards.front();
    const auto of_shard = [empty](const std::string& text) { return empty ? "?" : text; };
    table.add({group.group_id, std::to_string(group.epoch),
               fmt::format("{} of {}", group.rank, group.nranks), state_of(group),
               fmt::format("{:.3f}", group.state_since_s), std::to_string(group.members.size()),
               std::to_string(group.lanes), std::to_string(group.payload_bytes),
               of_shard(std::to_string(shard.posted_op_seq)),
               of_shard(std::to_string(shard.done_op_seq)), of_shard(rtt_of(shard))});
    if (group.aborted)
      below += fmt::format("group {} aborted: {}\n", group.group_id, *group.aborted);
    for (const std::string& what : group.waits_for) {
      below += fmt::format("group {} waits for: {}\n", group.group_id, what);
    }
  }
  return table.empty() ? "no group\n" : table.text() + below;
}

void add_groups(CLI::App& app, Action& action) {
  add_view(app, action, "groups", "The groups of this daemon",
           {[](const nlohmann::json& answer, const status::DaemonStatus&) {
              return elements(answer, "groups");
            },
            groups_text});
}

}  // namespace gradwire::cli
