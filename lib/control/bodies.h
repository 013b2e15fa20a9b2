// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The error of a request whose body has the wrong size. Private to lib/control.
#pragma once

#include <fmt/format.h>

#include <span>

#include "base/result.h"
#include "ipc/control_messages.h"

namespace gradwire::control {

template <class T>
[[nodiscard]] Error wrong_size(ipc::MessageType type, std::span<const std::byte> body) {
  return {ErrorCode::kInvalidArgument, fmt::format("request '{}' of {} bytes, must have {}",
                                                   ipc::name_of(type), body.size(), sizeof(T))};
}

}  // namespace gradwire::control
