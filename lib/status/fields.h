// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A struct as JSON, from one list of its members. Pure; any thread; it allocates.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "status/daemon_status.h"

namespace gradwire::status {

template <class T>
void put(nlohmann::json& out, const char* name, const T& value) {
  out[name] = value;
}
template <class T>
void put(nlohmann::json& out, const char* name, const std::optional<T>& value) {
  out[name] = value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}
template <class T>
void put(nlohmann::json& out, const char* name, const Maybe<T>& value) {
  if (value) out[name] = *value;
}

template <class T>
void take_value(const nlohmann::json& in, T& value) {
  try {
    T read = value;
    in.get_to(read);
    value = std::move(read);
  } catch (const nlohmann::json::exception&) {
    // Of another kind: another release's.
  }
}
template <class T>
void take_value(const nlohmann::json& in, std::optional<T>& value) {
  T read{};
  take_value(in, read);
  value = std::move(read);
}
template <class T>
void take_value(const nlohmann::json& in, Maybe<T>& value) {
  take_value(in, static_cast<std::optional<T>&>(value));
}
template <class T>
void take(const nlohmann::json& in, const char* name, T& value) {
  if (!in.is_object()) return;
  const auto found = in.find(name);
  if (found != in.end() && !found->is_null()) take_value(*found, value);
}

}  // namespace gradwire::status

#define GRADWIRE_PUT_FIELD(name) ::gradwire::status::put(out, #name, value.name);
#define GRADWIRE_TAKE_FIELD(name) ::gradwire::status::take(in, #name, value.name);
/// A member's name in the JSON; does not compile if there is no such member.
#define GRADWIRE_FIELD_NAME(Type, name) (static_cast<void>(&Type::name), #name)

/// Defines to_json() of `Type` by the names of all its members; the binding is what does not
/// compile if there are more or fewer of them.
#define GRADWIRE_PUT_FIELDS(Type, ...)                                         \
  void to_json(nlohmann::json& out, const Type& value) {                       \
    [[maybe_unused]] const auto& [__VA_ARGS__] = value;                        \
    out = nlohmann::json::object();                                            \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(GRADWIRE_PUT_FIELD, __VA_ARGS__)) \
  }

/// And from_json() by the same names.
#define GRADWIRE_FIELDS(Type, ...)                                              \
  GRADWIRE_PUT_FIELDS(Type, __VA_ARGS__)                                        \
  void from_json(const nlohmann::json& in, Type& value) {                       \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(GRADWIRE_TAKE_FIELD, __VA_ARGS__)) \
  }
