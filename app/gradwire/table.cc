// SPDX-License-Identifier: BSD-3-Clause
#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace gradwire::cli {

using nlohmann::json;

std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.3f}", value.get<double>());
  return value.dump();
}

std::string field(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || object[name].is_null()) return "?";
  return text_of(object[name]);
}

double number(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_number()) return 0;
  return object[name].get<double>();
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      // A column is right-aligned if the cell below its heading begins with a digit.
      const std::string& below = rows_.size() > 1 && i < rows_[1].size() ? rows_[1][i] : row[i];
      const bool right = !below.empty() && std::isdigit(static_cast<unsigned char>(below[0])) != 0;
      const std::size_t width = widths[i];
      line += right ? fmt::format("{:>{}}", row[i], width) : fmt::format("{:<{}}", row[i], width);
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace gradwire::cli
