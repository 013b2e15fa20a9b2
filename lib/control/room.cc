// SPDX-License-Identifier: BSD-3-Clause
#include "control/room.h"

#include <fmt/format.h>

namespace gradwire::control {

Result<void> check_room(const Room& room, uid_t uid) {
  if (room.count >= room.limit) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("the daemon already has {0} {1}, and {2} = {3}: {4} one, or raise {2} "
                            "in the daemon's configuration",
                            room.count, room.what, room.key, room.limit, room.give_up));
  }
  if (room.of_user >= room.limit_of_user) {
    return fail(
        ErrorCode::kResourceExhausted,
        fmt::format("user {0} already has {1} {2}, and {3} = {4}: {5} one, or raise {3} in "
                    "the daemon's configuration",
                    uid, room.of_user, room.what, room.user_key, room.limit_of_user, room.give_up));
  }
  return {};
}

}  // namespace gradwire::control
