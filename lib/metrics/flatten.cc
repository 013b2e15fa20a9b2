// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace gradwire::metrics {

using nlohmann::json;

namespace {

std::string clean(const std::string& name) {
  std::string out = name;
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '_'; },
      '_');
  return out;
}

std::string joined(const json& array) {
  std::string text;
  for (const json& element : array) {
    if (!text.empty()) text += "; ";
    text += element.is_string() ? element.get<std::string>() : element.dump();
  }
  return text;
}

void add(FlatDict& out, const std::string& name, const json& value) {
  if (value.is_object()) {
    for (const auto& [inner, each] : value.items()) add(out, name + "_" + clean(inner), each);
  } else if (value.is_array()) {
    const bool objects =
        std::any_of(value.begin(), value.end(), [](const json& each) { return each.is_object(); });
    if (!objects) out.emplace_back(name, joined(value));
  } else if (value.is_number_unsigned() || (value.is_number_integer() && value >= 0)) {
    out.emplace_back(name, value.get<std::uint64_t>());
  } else if (value.is_number_float()) {
    out.emplace_back(name, fmt::format("{:.6g}", value.get<double>()));
  } else if (value.is_string()) {
    out.emplace_back(name, value.get<std::string>());
  } else {
    out.emplace_back(name, value.dump());
  }
}

/// One of `all`, by its index or by its name; without a parameter the list of names.
template <class T, class NameOf, class Show>
Answer pick(const std::vector<T>& all, const std::string& parameter, NameOf&& name_of,
            Show&& show) {
  Answer answer;
  if (parameter.empty()) {
    answer.valid = true;
    for (const T& one : all) answer.list.push_back(name_of(one));
    return answer;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (parameter != std::to_string(i) && parameter != name_of(all[i])) continue;
    answer.valid = true;
    answer.dict = flatten(show(all[i]));
    return answer;
  }
  return answer;
}

std::string lane_name(const status::Lane& lane) { return std::to_string(lane.lane); }

}  // namespace

FlatDict flatten(const json& object) {
  FlatDict out;
  if (!object.is_object()) return out;
  for (const auto& [name, value] : object.items()) add(out, clean(name), value);
  return out;
}

Answer answer_status(const status::DaemonStatus& status) {
  Answer answer;
  answer.valid = true;
  answer.dict = flatten(status.daemon);
  answer.dict.emplace_back("groups", std::uint64_t{status.groups.size()});
  answer.dict.emplace_back("clients", std::uint64_t{status.clients.size()});
  answer.dict.emplace_back("unfinished_ops", std::uint64_t{status.ops.size()});
  return answer;
}

Answer answer_groups(const status::DaemonStatus& status, const std::string& parameter) {
  return pick(
      status.groups, parameter, [](const status::Group& group) { return group.group_id; },
      [](const status::Group& group) { return json(group); });
}

Answer answer_ports(const status::DaemonStatus& status, const std::string& parameter) {
  return pick(
      status.ports, parameter, [](const status::Port& port) { return port.device; },
      [](const status::Port& port) { return json(port); });
}

Answer answer_lanes(const status::DaemonStatus& status, const std::string& parameter) {
  return pick(status.lanes, parameter, lane_name, [](const status::Lane& lane) {
    json shown = lane;
    for (const char* counted : {"counters", "transport", "op_latency"}) shown.erase(counted);
    return shown;
  });
}

Answer answer_counters(const status::DaemonStatus& status, const std::string& parameter) {
  return pick(status.lanes, parameter, lane_name, [](const status::Lane& lane) {
    return json{{"lane", lane.lane}, {"packets", lane.counters}, {"transport", lane.transport}};
  });
}

}  // namespace gradwire::metrics
