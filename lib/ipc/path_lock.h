// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A lock on a path, so that one daemon has it.
#pragma once

#include <string>

#include "base/result.h"
#include "ipc/unique_fd.h"

namespace gradwire::ipc {

/// The lock lasts as long as the descriptor, however the process ends. The file stays behind, since
/// removing a lock file would let two processes hold different ones.
/// @return kBusy if another process has it; the text names its pid if it is known.
[[nodiscard]] Result<UniqueFd> take_path_lock(const std::string& path);

}  // namespace gradwire::ipc
