// SPDX-License-Identifier: BSD-3-Clause
#include "port/eal.h"

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "port/port.h"

namespace gradwire::port {
namespace {

bool names_option(std::string_view argument, std::string_view option) {
  return argument == option || (argument.starts_with(option) && argument[option.size()] == '=');
}

/// @return `name` with only characters that file names in /run/dpdk and /dev/hugepages may have.
std::string to_file_prefix(const std::string& name) {
  std::string prefix = name;
  for (char& c : prefix) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '_';
  }
  return prefix;
}

/// Whether this process has files in /run/dpdk. If not, files there belong to another process and
/// must stay.
bool has_eal_files = false;

/// The files of the hugepages that this process has mapped; empty if they were unlinked or never
/// had files.
std::vector<std::string> hugepage_files() {
  // The EAL names them PREFIXmap_N, and its runtime folder PREFIX.
  const std::string wanted =
      '/' + std::filesystem::path(rte_eal_get_runtime_dir()).filename().string() + "map_";
  std::vector<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path == std::string::npos || line.ends_with(" (deleted)")) continue;
    const std::size_t name = line.rfind('/');
    if (line.compare(name, wanted.size(), wanted) != 0) continue;
    if (files.empty() || files.back() != line.substr(path)) files.push_back(line.substr(path));
  }
  return files;
}

bool may_run_without_hugepages() {
  const char* const value = std::getenv(kNoHugeVariable);
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

Result<std::vector<std::string>> make_eal_arguments(const std::string& program,
                                                    const std::vector<std::string>& given,
                                                    const std::string& name, bool shared) {
  const auto has = [&](std::string_view option) {
    return std::any_of(given.begin(), given.end(),
                       [&](const std::string& argument) { return names_option(argument, option); });
  };
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!names_option(given[i], "--proc-type")) continue;
    const std::size_t equals = given[i].find('=');
    const std::string type = equals != std::string::npos ? given[i].substr(equals + 1)
                             : i + 1 < given.size()      ? given[i + 1]
                                                         : "";
    if (type != "primary") {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--proc-type {}: the daemon must be a primary process: leave the option out",
                      type));
    }
  }
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), given.begin(), given.end());
  // --in-memory keeps no files that a prefix could name.
  if (!has("--file-prefix") && !has("--in-memory")) {
    arguments.push_back("--file-prefix=" + to_file_prefix(name));
  }
  // Without it the EAL leaves files in /dev/hugepages when the daemon ends, and their pages stay in
  // use. leave_eal() removes shared ones; if a daemon was killed, its next start removes them.
  if (!shared && !has("--huge-unlink") && !has("--in-memory") && !has("--no-huge")) {
    arguments.push_back("--huge-unlink=always");
  }
  return arguments;
}

void log_to(std::FILE* stream) noexcept { static_cast<void>(rte_openlog_stream(stream)); }

Result<void> start_eal(std::vector<std::string> given, unsigned least_lcores) {
  // The EAL keeps pointers into its arguments as long as the process lives.
  static std::vector<std::string> arguments;
  arguments = std::move(given);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int argc = static_cast<int>(arguments.size());
  const int taken = rte_eal_init(argc, argv.data());
  if (taken < 0) {
    return fail(
        ErrorCode::kSystem,
        fmt::format("the EAL did not start: {} (see its own messages above; check that hugepages "
                    "are free and that no other process uses the same --file-prefix)",
                    rte_strerror(rte_errno)));
  }
  has_eal_files = rte_eal_process_type() == RTE_PROC_PRIMARY;
  if (taken + 1 < argc) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not an EAL option; put gradwire's own options after \"--\"",
                            argv[static_cast<std::size_t>(taken) + 1]));
  }
  if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
    return fail(ErrorCode::kInvalidArgument,
                "the EAL started as a secondary process, but the daemon must be a primary one");
  }
  if (rte_eal_has_hugepages() == 0 && !may_run_without_hugepages()) {
    return fail(ErrorCode::kInvalidArgument,
                "the EAL runs without hugepages (--no-huge), but the datapath needs them: reserve "
                "some in /sys/kernel/mm/hugepages and leave --no-huge out");
  }
  if (rte_lcore_count() < least_lcores) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} lcore{} not enough, {} are needed: the first runs the control plane and "
                    "each other one a lane; pass --lcores 0@0,1@1, or --lcores '0@(0-1),1@(0-1)' "
                    "to leave them unpinned",
                    rte_lcore_count(), rte_lcore_count() == 1 ? " is" : "s are", least_lcores));
  }
  return {};
}

Result<std::string> shared_runtime_folder() {
  const std::filesystem::path folder = rte_eal_get_runtime_dir();
  std::error_code ignored;
  // A secondary process reads this file first.
  if (!has_eal_files || !std::filesystem::exists(folder / "config", ignored)) {
    return fail(ErrorCode::kUnsupported,
                "the EAL does not share its configuration with other processes: leave --in-memory "
                "or --no-shconf out");
  }
  if (hugepage_files().empty()) {
    return fail(ErrorCode::kUnsupported,
                "the EAL's memory has no files that a second process could map: leave --no-huge or "
                "--huge-unlink out");
  }
  return folder.string();
}

void leave_eal() noexcept {
  if (!has_eal_files) return;
  close_all_ports();
  remove_eal_files();
}

void remove_eal_files() noexcept {
  if (!has_eal_files) return;
  std::error_code ignored;
  for (const std::string& file : hugepage_files()) std::filesystem::remove(file, ignored);
  std::filesystem::remove_all(rte_eal_get_runtime_dir(), ignored);
}

}  // namespace gradwire::port
