// SPDX-License-Identifier: BSD-3-Clause
#include "control/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "control/shard_status.h"

namespace gradwire::control {

using nlohmann::json;

namespace {

std::int64_t unix_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

json event_json(const lane::TraceEvent& event, const GroupName* name) {
  json entry = {{"at_ns", event.at},
                {"lane", event.lane},
                {"event", lane::name_of(event.type)},
                {"op_seq", event.op_seq},
                {"value", event.value}};
  if (event.type != lane::TraceType::kAborted) {
    entry["collective"] = name_of(event.collective);
    if (event.wire != WireFormat::kSame) entry["wire"] = name_of(event.wire);
    if (event.type == lane::TraceType::kDone) entry["shape"] = name_of(event.shape);
  }
  if (name != nullptr) {
    entry["group_id"] = fmt::format("{:016x}", name->key.group_id);
    entry["epoch"] = name->key.epoch;
    entry["rank"] = name->rank;
    entry["nranks"] = name->nranks;
  }
  if (event.type == lane::TraceType::kAborted) {
    AbortReason reason;
    reason.code = static_cast<AbortCode>(event.value);
    reason.culprit_rank = event.culprit_rank;
    reason.reporter_rank = event.reporter_rank;
    reason.op_seq = event.op_seq;
    entry["reason"] = describe(reason);
  }
  return entry;
}

}  // namespace

std::function<json()> prepare_trace(const LaneReports& reports, std::uint8_t lanes,
                                    std::uint64_t incarnation, const GroupTable& groups, TimeNs now,
                                    uid_t viewer) {
  std::vector<lane::TraceEvent> events;
  for (std::uint8_t lane = 0; lane < lanes; ++lane) {
    const std::vector<lane::TraceEvent> of_lane = reports.trace(lane);
    events.insert(events.end(), of_lane.begin(), of_lane.end());
  }
  // Lanes go on while the control thread's round, at whose begin `now` was read, takes its time. No
  // event may lie behind the time that the trace is of: who shows it would end an op before its
  // beginning.
  for (const lane::TraceEvent& event : events) now = std::max(now, event.at);
  json about = {{"pid", ::getpid()},
                {"incarnation", fmt::format("{:016x}", incarnation)},
                {"lanes", lanes},
                {"now_ns", now},
                {"unix_now_ns", unix_now_ns()}};
  return [events = std::move(events), names = groups.names(), about = std::move(about), viewer] {
    json out = about;
    json& all = out["events"] = json::array();
    for (const lane::TraceEvent& event : events) {
      const auto name = names.find(event.group_handle);
      all.push_back(event_json(event, name == names.end() ? nullptr : &name->second));
      if (name != names.end() && !may_see(viewer, name->second.uid)) {
        all.back()["group_id"] = status::hidden_name(event.group_handle);
      }
    }
    return out;
  };
}

}  // namespace gradwire::control
