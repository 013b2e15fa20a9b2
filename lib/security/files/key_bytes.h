// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Reads the 32 bytes of a key file, and says by name what no key file is (doc/security.md, Key
/// files). A library of its own, since libgradwire reads jobs' keys and links no cipher. Any
/// thread; allocates.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace gradwire::security {

inline constexpr std::size_t kKeyFileBytes = 32;
using KeyBytes = std::span<std::byte, kKeyFileBytes>;
using KeyBytesIn = std::span<const std::byte, kKeyFileBytes>;

/// The errors of key files begin alike: "key file PATH: ".
[[nodiscard]] tl::unexpected<Error> refuse_key_file(ErrorCode code, const std::string& path,
                                                    const std::string& why);

/// Of a system call that has just failed: what errno says.
[[nodiscard]] tl::unexpected<Error> failed_key_file(const std::string& path, const char* call);

/// Symbolic links are followed: what is checked is the file that was opened. A file of systemd's
/// credentials that is root's may be readable for its group, as systemd makes it for a service that
/// is not root.
/// @param key  written on success alone; the caller clears it.
/// @return kNotFound, kPermission (owner, mode) or kInvalidArgument (kind, length, contents).
[[nodiscard]] Result<void> read_key_bytes(const std::string& path, KeyBytes key);

/// Why these bytes are no random key: they are all alike, or text. Empty: they may be one.
[[nodiscard]] std::string why_no_key(KeyBytesIn key);

}  // namespace gradwire::security
