// SPDX-License-Identifier: BSD-3-Clause
#include "operate/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/json_fields.h"

namespace gradwire::operate {

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

/// One element of the array, by its index or by its `key`; without a parameter the list of keys.
Answer pick(const json& array, const char* key, const std::string& parameter) {
  Answer answer;
  const auto name_of = [&](const json& element) {
    const json value = element.is_object() ? element.value(key, json()) : json();
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  if (parameter.empty()) {
    answer.valid = true;
    for (const json& element : array) answer.list.push_back(name_of(element));
    return answer;
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (parameter != std::to_string(i) && parameter != name_of(array[i])) continue;
    answer.valid = true;
    answer.dict = flatten(array[i]);
    return answer;
  }
  return answer;
}

}  // namespace

FlatDict flatten(const json& object) {
  FlatDict out;
  if (!object.is_object()) return out;
  for (const auto& [name, value] : object.items()) add(out, clean(name), value);
  return out;
}

Answer answer_status(const json& status) {
  Answer answer;
  answer.valid = true;
  if (status.is_object() && status.contains("daemon")) answer.dict = flatten(status["daemon"]);
  answer.dict.emplace_back("groups", std::uint64_t{elements(status, "groups").size()});
  answer.dict.emplace_back("clients", std::uint64_t{elements(status, "clients").size()});
  answer.dict.emplace_back("unfinished_ops", std::uint64_t{elements(status, "ops").size()});
  return answer;
}

Answer answer_groups(const json& status, const std::string& parameter) {
  return pick(elements(status, "groups"), "group_id", parameter);
}

Answer answer_ports(const json& status, const std::string& parameter) {
  return pick(elements(status, "ports"), "device", parameter);
}

Answer answer_lanes(const json& status, const std::string& parameter) {
  json lanes = elements(status, "lanes");
  for (json& lane : lanes) {
    if (!lane.is_object()) continue;
    lane.erase("counters");
    lane.erase("transport");
    lane.erase("op_latency");
  }
  return pick(lanes, "lane", parameter);
}

Answer answer_counters(const json& status, const std::string& parameter) {
  json counters = json::array();
  for (const json& lane : elements(status, "lanes")) {
    if (!lane.is_object()) continue;
    counters.push_back({{"lane", lane.value("lane", json())},
                        {"packets", lane.value("counters", json::object())},
                        {"transport", lane.value("transport", json::object())}});
  }
  return pick(counters, "lane", parameter);
}

}  // namespace gradwire::operate
