// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What CPU a bench runs on, for the first line of its figures.
#pragma once

#include <fmt/core.h>

#include <fstream>
#include <string>

namespace gradwire::perf {

/// @return "AMD EPYC (family 25, model 1)", from /proc/cpuinfo.
inline std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  std::string family;
  std::string model;
  std::string name;
  for (std::string line; std::getline(info, line) && !line.empty();) {  // the first processor's
    const std::size_t colon = line.find(": ");
    if (line.rfind("cpu family", 0) == 0) family = line.substr(colon + 2);
    if (line.rfind("model name", 0) == 0) {
      name = line.substr(colon + 2);
    } else if (line.rfind("model", 0) == 0) {
      model = line.substr(colon + 2);
    }
  }
  return fmt::format("{} (family {}, model {})", name, family, model);
}

}  // namespace gradwire::perf
