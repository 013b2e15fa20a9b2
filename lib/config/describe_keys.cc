// SPDX-License-Identifier: BSD-3-Clause
// Keys and their values as a user reads them: in messages, in TOML and in --help.
#include <fmt/format.h>

#include "config/keys.h"

namespace gradwire::config {
namespace {

std::string quoted(std::string_view text_value) {
  std::string out = "\"";
  for (const char c : text_value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

std::string describe_bounds(const Key& key) {
  const std::string or_auto = key.may_be_auto ? ", or \"auto\"" : "";
  const std::string unit = key.unit[0] != '\0' ? fmt::format(" {}", key.unit) : "";
  switch (key.kind) {
    case Kind::kText:
      return fmt::format("a string of {:.0f} to {:.0f} characters", key.min, key.max);
    case Kind::kChoice: {
      std::string out = "one of ";
      for (const char* c = key.choices; *c != '\0'; ++c) {
        if (*c == '|') {
          out += ", ";
        } else {
          out += *c;
        }
      }
      return out;
    }
    case Kind::kBool:
      return "true or false";
    case Kind::kInteger:
      return fmt::format("an integer from {:.0f} to {:.0f}{}{}", key.min, key.max, unit, or_auto);
    case Kind::kPowerOfTwo:
      return fmt::format("a power of two from {:.0f} to {:.0f}{}{}", key.min, key.max, unit,
                         or_auto);
    case Kind::kReal:
      return fmt::format("a number from {:.0f} to {:.0f}{}", key.min, key.max, unit);
    case Kind::kMode:
      return "a string of three or four octal digits, such as \"0660\"";
    case Kind::kIpPrefix:
      return "an address with its prefix, such as \"10.0.0.1/24\" or \"fd00::1/64\"";
    case Kind::kIp:
      return fmt::format("an address, such as \"10.0.0.1\" or \"fd00::1\"{}",
                         !key.required ? ", or \"\"" : "");
    case Kind::kMac:
      return "a unicast Ethernet address, such as \"02:00:00:00:00:01\"";
  }
  return "";
}

std::string to_toml_value(const Key& key, const Field& field) {
  if (const auto* const* text_field = std::get_if<std::string*>(&field)) {
    return quoted(**text_field);
  }
  if (const auto* const* bool_field = std::get_if<bool*>(&field)) {
    return **bool_field ? "true" : "false";
  }
  if (const auto* const* real_field = std::get_if<double*>(&field)) {
    // TOML's numbers without a point are integers: those are accepted for a real key too.
    return fmt::format("{}", **real_field);
  }
  if (const auto* prefix_field = std::get_if<IpPrefixField>(&field)) {
    return quoted(fmt::format("{}/{}", *prefix_field->address, *prefix_field->prefix_bits));
  }
  if (const auto* const* signed_field = std::get_if<std::int64_t*>(&field)) {
    return fmt::format("{}", **signed_field);
  }
  if (const auto* const* small_field = std::get_if<std::uint32_t*>(&field)) {
    return fmt::format("{}", **small_field);
  }
  const std::uint64_t value = *std::get<std::uint64_t*>(field);
  if (key.kind == Kind::kMode) return fmt::format("\"{:04o}\"", value);
  if (key.may_be_auto && value == kAuto) return "\"auto\"";
  return fmt::format("{}", value);
}

std::string describe_default(const Key& key) {
  if (key.required) return "required";
  DaemonConfig defaults;
  resize_at_least(defaults, key.section, 1);
  return to_toml_value(key, key.field(defaults, 0));
}

std::string describe_keys() {
  std::string out;
  std::string_view section;
  for (const Key& key : keys()) {
    if (section != key.section) {
      section = key.section;
      out += is_array_section(section)
                 ? fmt::format("\n[[{0}]]  (--{0}.KEY is the first, --{0}.N.KEY number N from 0)\n",
                               section)
                 : fmt::format("\n[{}]\n", section);
    }
    out += fmt::format("  --{}.{} VALUE\n      {}\n      {}; {}\n", key.section, key.name, key.help,
                       describe_bounds(key),
                       key.required ? "required" : "default " + describe_default(key));
  }
  return out;
}

}  // namespace gradwire::config
