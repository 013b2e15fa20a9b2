// SPDX-License-Identifier: BSD-3-Clause
#include "lane/eal.h"

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "lane/port.h"

namespace gradwire::lane {
namespace {

bool names_option(std::string_view argument, std::string_view option) {
  return argument == option || (argument.starts_with(option) && argument[option.size()] == '=');
}

/// Names of files in /run/dpdk and /dev/hugepages are made of it.
std::string to_file_prefix(const std::string& name) {
  std::string prefix = name;
  for (char& c : prefix) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '_';
  }
  return prefix;
}

/// This process has files in /run/dpdk: those of another process's prefix are not ours to remove.
bool has_eal_files = false;

bool may_run_without_hugepages() {
  const char* const value = std::getenv(kNoHugeVariable);
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

Result<std::vector<std::string>> make_eal_arguments(const std::string& program,
                                                    const std::vector<std::string>& given,
                                                    const std::string& name) {
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
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--proc-type {}: a daemon is always primary: leave it out", type));
    }
  }
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), given.begin(), given.end());
  // --in-memory keeps no files that a prefix could name.
  if (!has("--file-prefix") && !has("--in-memory")) {
    arguments.push_back("--file-prefix=" + to_file_prefix(name));
  }
  // Otherwise the EAL leaves its hugepages in /dev/hugepages, taken, when the daemon ends.
  if (!has("--huge-unlink") && !has("--in-memory") && !has("--no-huge")) {
    arguments.push_back("--huge-unlink=always");
  }
  return arguments;
}

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
    return fail(ErrorCode::kSystem,
                fmt::format("the EAL did not start: {} (its own lines above say more; are there "
                            "free hugepages, and is --file-prefix used by no other process?)",
                            rte_strerror(rte_errno)));
  }
  has_eal_files = rte_eal_process_type() == RTE_PROC_PRIMARY;
  if (taken + 1 < argc) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: not an EAL option; gradwire's own options stand after \"--\"",
                            argv[static_cast<std::size_t>(taken) + 1]));
  }
  if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
    return fail(ErrorCode::kInvalidArgument,
                "the EAL started as a secondary process: a daemon is always primary");
  }
  if (rte_eal_has_hugepages() == 0 && !may_run_without_hugepages()) {
    return fail(ErrorCode::kInvalidArgument,
                "the EAL runs without hugepages (--no-huge): the datapath needs them; reserve "
                "some in /sys/kernel/mm/hugepages and leave --no-huge out");
  }
  if (rte_lcore_count() < least_lcores) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} lcore{} not enough, {} are needed: the first is the control plane "
                    "and each other one a lane; pass --lcores 0@0,1@1, or --lcores "
                    "'0@(0-1),1@(0-1)' to let them float",
                    rte_lcore_count(), rte_lcore_count() == 1 ? " is" : "s are", least_lcores));
  }
  return {};
}

void leave_eal() noexcept {
  if (!has_eal_files) return;
  close_all_ports();
  remove_eal_files();
}

void remove_eal_files() noexcept {
  if (!has_eal_files) return;
  std::error_code ignored;
  std::filesystem::remove_all(rte_eal_get_runtime_dir(), ignored);
}

}  // namespace gradwire::lane
