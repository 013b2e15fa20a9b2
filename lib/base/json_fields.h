// SPDX-License-Identifier: BSD-3-Clause
// Reads parts of a JSON document of another process: a part may be missing or of another type
// than expected.
#pragma once

#include <nlohmann/json.hpp>

namespace gradwire {

/// The array `object[name]`, or an empty one.
inline nlohmann::json elements(const nlohmann::json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_array()) {
    return nlohmann::json::array();
  }
  return object[name];
}

/// The object `object[name]`, or an empty one.
inline nlohmann::json section(const nlohmann::json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_object()) {
    return nlohmann::json::object();
  }
  return object[name];
}

}  // namespace gradwire
