// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Columns for the terminal, and values of JSON as text. Pure; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_fields.h"

namespace gradwire::cli {

/// A value as text: numbers with a fraction to three places, objects as JSON.
[[nodiscard]] std::string text_of(const nlohmann::json& value);
/// The member of that name as text; "?" if there is none, or null.
[[nodiscard]] std::string field(const nlohmann::json& object, const char* name);
/// The number of that name; 0 if there is none.
[[nodiscard]] double number(const nlohmann::json& object, const char* name);

/// Rows under a heading, each column as wide as its widest cell; numbers are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) : rows_{std::move(heading)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] bool empty() const { return rows_.size() == 1; }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gradwire::cli
