// SPDX-License-Identifier: BSD-3-Clause
#include "host/isolation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace gradwire::host {
namespace {

/// Far more CPUs than any machine has. Limits what a damaged list can make us allocate.
constexpr int kMaxCpu = 65'535;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::optional<int> to_int(std::string_view text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || parsed != end || text.empty()) return std::nullopt;
  return value;
}

/// Empty if the file is not there: a kernel without the feature has no file for it.
std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  return out.str();
}

Result<bool> is_listed(int cpu, const std::string& path) {
  auto list = parse_cpu_list(read_text(path));
  if (!list) {
    return fail(list.error().code, fmt::format("{}: {}", path, list.error().message));
  }
  return std::find(list->begin(), list->end(), cpu) != list->end();
}

/// cpuN has a link nodeM to its node's directory.
int numa_node_of(const std::string& cpu_directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(cpu_directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    if (const auto node = to_int(std::string_view(name).substr(4))) return *node;
  }
  return -1;
}

}  // namespace

Result<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  std::string_view rest = trimmed(text);
  if (rest.empty() || rest == "(null)") return cpus;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t dash = item.find('-');
    const auto first = to_int(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : to_int(item.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMaxCpu) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("CPU list \"{}\": \"{}\" is neither a CPU nor a range such as 0-3",
                              trimmed(text), item));
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string to_cpu_list(std::span<const int> sorted_cpus) {
  std::string out;
  for (std::size_t i = 0; i < sorted_cpus.size();) {
    std::size_t last = i;
    while (last + 1 < sorted_cpus.size() && sorted_cpus[last + 1] == sorted_cpus[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", sorted_cpus[i]);
    if (last > i) out += fmt::format("-{}", sorted_cpus[last]);
    i = last + 1;
  }
  return out;
}

Result<CoreFacts> read_core_facts(int cpu, const std::string& sysfs_root) {
  const std::string cpus = sysfs_root + "/devices/system/cpu";
  const std::string own = fmt::format("{}/cpu{}", cpus, cpu);
  std::error_code ignored;
  if (!std::filesystem::is_directory(own, ignored)) {
    return fail(ErrorCode::kNotFound,
                fmt::format("this host has no CPU {1} ({0} does not exist)", own, cpu));
  }
  const auto isolated = is_listed(cpu, cpus + "/isolated");
  if (!isolated) return tl::unexpected(isolated.error());
  const auto nohz_full = is_listed(cpu, cpus + "/nohz_full");
  if (!nohz_full) return tl::unexpected(nohz_full.error());
  return CoreFacts{cpu, *isolated, *nohz_full, numa_node_of(own)};
}

std::vector<std::string> isolation_problems(std::span<const CoreFacts> cpus, int port_numa_node) {
  std::vector<std::string> problems;
  if (cpus.size() != 1) {
    std::vector<int> list;
    for (const CoreFacts& core : cpus) list.push_back(core.cpu);
    std::sort(list.begin(), list.end());
    problems.push_back(fmt::format("it may run on {} CPUs ({}): pin it to one, as in --lcores 1@1",
                                   list.size(), to_cpu_list(list)));
  }
  for (const CoreFacts& core : cpus) {
    if (!core.isolated) {
      problems.push_back(
          fmt::format("other tasks may run on CPU {}: isolate it (kernel parameter isolcpus={})",
                      core.cpu, core.cpu));
    }
    if (!core.nohz_full) {
      problems.push_back(fmt::format(
          "timer ticks interrupt CPU {}: make it tickless (kernel parameter nohz_full={})",
          core.cpu, core.cpu));
    }
    if (port_numa_node >= 0 && core.numa_node >= 0 && core.numa_node != port_numa_node) {
      problems.push_back(fmt::format(
          "CPU {} is on NUMA node {}, but its port is on node {}: choose a core of node {}",
          core.cpu, core.numa_node, port_numa_node, port_numa_node));
    }
  }
  return problems;
}

Result<std::uint64_t> read_involuntary_switches(int thread_id, const std::string& procfs_root) {
  const std::string path = fmt::format("{}/self/task/{}/status", procfs_root, thread_id);
  std::ifstream in(path);
  if (!in) return fail(ErrorCode::kNotFound, path + " cannot be read: no such thread");
  constexpr std::string_view kLabel = "nonvoluntary_ctxt_switches:";
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(kLabel)) continue;
    const std::string_view text = trimmed(std::string_view(line).substr(kLabel.size()));
    std::uint64_t count = 0;
    const char* const end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data(), end, count);
    if (error == std::errc{} && parsed == end) return count;
    break;
  }
  return fail(ErrorCode::kSystem, path + " does not show nonvoluntary_ctxt_switches as a number");
}

}  // namespace gradwire::host
