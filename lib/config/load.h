// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// From TOML text and flags to a checked DaemonConfig, and back to text. Every mistake is named
/// with its place ("file:line" or the flag), the key, the value and what would be right; all of
/// them are told at once, a line each. Control thread; allocates.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/daemon_config.h"

namespace gradwire::config {

/// A flag: `name` is "section.key", or "section.N.key" for element N of an array section ("port.ip"
/// is "port.0.ip"). It replaces what the file says.
struct Override {
  std::string name;
  std::string value;
};

/// @param toml_text  the file's contents; may be empty.
/// @param file_name  for messages.
[[nodiscard]] Result<DaemonConfig> load(std::string_view toml_text, std::string_view file_name,
                                        std::span<const Override> overrides = {});

/// @param path  "" takes the flags alone.
[[nodiscard]] Result<DaemonConfig> load_file(const std::string& path,
                                             std::span<const Override> overrides = {});

/// The effective configuration: load() of it gives an equal DaemonConfig.
[[nodiscard]] std::string to_toml(const DaemonConfig& config);

/// @return the largest chunk payload that an IP packet of `mtu` bytes carries to `ip` (canonical
/// text), a multiple of 64.
[[nodiscard]] std::uint64_t max_payload_bytes(std::uint64_t mtu, std::string_view ip) noexcept;

}  // namespace gradwire::config
