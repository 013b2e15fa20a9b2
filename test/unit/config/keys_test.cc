// SPDX-License-Identifier: BSD-3-Clause
#include "config/keys.h"

#include <catch2/catch.hpp>
#include <set>

#include "config/load.h"
#include "config/value.h"

namespace gradwire::config {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("every key is there once, and has help") {
  std::set<std::string> seen;
  for (const Key& key : keys()) {
    INFO(key.section << "." << key.name);
    CHECK(seen.insert(std::string(key.section) + "." + key.name).second);
    CHECK(std::string_view(key.help).size() > 5);
    CHECK(find_key(key.section, key.name) == &key);
  }
  CHECK(find_key("lanes", "device") == nullptr);
}

TEST_CASE("every key has a place of its own") {
  DaemonConfig config;
  for (const Key& key : keys()) resize_at_least(config, key.section, 2);
  std::set<const void*> places;
  for (const Key& key : keys()) {
    INFO(key.section << "." << key.name);
    const auto place = [&](std::size_t index) {
      return std::visit(
          [](auto field) -> const void* {
            if constexpr (std::is_same_v<decltype(field), IpPrefixField>) {
              return field.address;
            } else {
              return field;
            }
          },
          key.field(config, index));
    };
    CHECK(places.insert(place(0)).second);
    CHECK((place(0) != place(1)) == is_array_section(key.section));
  }
}

TEST_CASE("every default is within its own bounds") {
  for (const Key& key : keys()) {
    if (key.required) continue;
    INFO(key.section << "." << key.name << " = " << describe_default(key));
    std::string text = describe_default(key);
    if (text.front() == '"') text = text.substr(1, text.size() - 2);
    DaemonConfig config;
    resize_at_least(config, key.section, 1);
    CHECK_FALSE(assign(key, key.field(config, 0), value_of_flag(key, text)).has_value());
  }
}

TEST_CASE("help names every key as a flag, with unit, bounds and default") {
  const std::string help = describe_keys();
  for (const Key& key : keys()) {
    CHECK_THAT(help, Contains(std::string("--") + key.section + "." + key.name + " "));
  }
  CHECK_THAT(help, Contains("an integer from 100 to 3600000 ms; default 30000"));
  CHECK_THAT(help, Contains("or \"auto\"; default \"auto\""));
}

}  // namespace
}  // namespace gradwire::config
