// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether there may be one more of what limits count, of all users and of one.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"

namespace gradwire::control {

struct Room {
  const char* what;      ///< "clients"
  const char* key;       ///< of `limit`: "limits.clients"
  const char* user_key;  ///< of `limit_of_user`
  const char* give_up;   ///< what a user does with one that is not needed: "close"
  std::uint32_t count;
  std::uint32_t limit;
  std::uint32_t of_user;
  std::uint32_t limit_of_user;
};

/// @return kResourceExhausted, which names the limit that is reached.
[[nodiscard]] Result<void> check_room(const Room& room, uid_t uid);

}  // namespace gradwire::control
