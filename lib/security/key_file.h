// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Files of 32 random bytes (doc/security.md, Key files). Whoever reads one learns by name what is
/// wrong with it. Any thread; allocates.
#pragma once

#include <string>

#include "base/result.h"
#include "security/secret.h"

namespace gradwire::security {

/// Draws a key and writes it to a new file of mode 0600. What fails on the way leaves no file.
/// @return kBusy if there is such a file, kSystem if it cannot be written.
[[nodiscard]] Result<void> make_key_file(const std::string& path);

/// Symbolic links are followed: what is checked is the file that was opened.
/// @return kNotFound, kPermission (owner, mode) or kInvalidArgument (kind, length, contents).
[[nodiscard]] Result<Secret32> read_key_file(const std::string& path);

}  // namespace gradwire::security
