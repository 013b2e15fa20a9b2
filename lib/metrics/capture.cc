// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/capture.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_pdump.h>

#include <filesystem>
#include <utility>

namespace gradwire::metrics {

std::string capture_command(const std::string& runtime_folder) {
  const std::filesystem::path folder = runtime_folder;
  const std::filesystem::path above = folder.parent_path().parent_path();
  // Processes of root look in this folder by themselves; for another one they need an argument.
  const bool usual = above == "/var/run" || above == "/run";
  return fmt::format("{}dpdk-dumpcap --file-prefix={} -i PORT -w FILE",
                     usual ? "" : fmt::format("RUNTIME_DIRECTORY={} ", above.string()),
                     folder.filename().string());
}

Capture Capture::start(const Result<std::string>& runtime_folder) {
  if (!runtime_folder) {
    return {false, "capture is not available: " + runtime_folder.error().message};
  }
  if (rte_pdump_init() != 0) {
    return {false,
            fmt::format("capture is not available: rte_pdump_init(): {}", rte_strerror(rte_errno))};
  }
  return {true, "capture: " + capture_command(*runtime_folder)};
}

Capture::Capture(Capture&& other) noexcept
    : available_(std::exchange(other.available_, false)), text_(std::move(other.text_)) {}

Capture::~Capture() {
  if (available_) rte_pdump_uninit();
}

}  // namespace gradwire::metrics
