// SPDX-License-Identifier: BSD-3-Clause
#include "host/mounts.h"

#include <mntent.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>

namespace gradwire::host {
namespace {

// An overlay of many layers has long options, of which nothing here needs the end.
constexpr std::size_t kLongestLine = 16384;

}  // namespace

bool Mount::has(const std::string& option) const {
  return std::ranges::find(options, option) != options.end();
}

std::optional<std::int64_t> Mount::size() const {
  for (const std::string& option : options) {
    if (!option.starts_with("size=")) continue;
    char* end = nullptr;
    const std::int64_t number = std::strtoll(option.c_str() + 5, &end, 10);
    switch (std::tolower(static_cast<unsigned char>(*end))) {
      case 'k':
        return number << 10;
      case 'm':
        return number << 20;
      case 'g':
        return number << 30;
      default:
        return number;
    }
  }
  return std::nullopt;
}

std::vector<Mount> mounts_of(const Machine& machine) {
  std::vector<Mount> mounts;
  std::string text = machine.text("/proc/mounts").value_or("");
  if (text.empty()) return mounts;
  const std::unique_ptr<FILE, int (*)(FILE*)> lines(::fmemopen(text.data(), text.size(), "r"),
                                                    std::fclose);
  if (lines == nullptr) return mounts;
  std::array<char, kLongestLine> line;
  mntent entry{};
  while (::getmntent_r(lines.get(), &entry, line.data(), line.size()) != nullptr) {
    Mount& mount = mounts.emplace_back(Mount{entry.mnt_dir, entry.mnt_type, {}});
    std::istringstream each(entry.mnt_opts);
    for (std::string option; std::getline(each, option, ',');) mount.options.push_back(option);
  }
  return mounts;
}

const Mount* mount_of(const std::vector<Mount>& mounts, const std::string& folder) {
  const Mount* best = nullptr;
  for (const Mount& mount : mounts) {
    const bool holds =
        mount.folder == "/" || folder == mount.folder || folder.starts_with(mount.folder + "/");
    // Of two at one place the later one is seen.
    if (holds && (best == nullptr || mount.folder.size() >= best->folder.size())) best = &mount;
  }
  return best;
}

}  // namespace gradwire::host
