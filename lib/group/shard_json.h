// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Shards' numbers as JSON, and what an unfinished op waits for. Private to lib/group; pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "group/state.h"
#include "ring/shard.h"

namespace gradwire::group {

[[nodiscard]] constexpr double seconds(TimeNs ns) { return static_cast<double>(ns) / 1e9; }

/// Whether a user may know what names a group of `owner` on the wire: its own user, root, and the
/// daemon's own.
[[nodiscard]] bool may_see(uid_t viewer, uid_t owner) noexcept;
/// What others get in place of the group's id: "hidden-7".
[[nodiscard]] std::string hidden_name(std::uint64_t handle);

[[nodiscard]] nlohmann::json shard_json(std::uint8_t lane, const ring::ShardStatus& status);
[[nodiscard]] nlohmann::json counters_json(const ring::ShardCounters& counters);

/// The oldest unfinished op of a formed group on one lane, and who is to do something about it.
struct OpWait {
  std::uint64_t op_seq = 0;    ///< 0 = there is none
  const char* neighbour = "";  ///< "upstream", "downstream", or "" where it is this rank itself
  std::uint16_t rank = 0;      ///< the neighbour's
  TimeNs since = 0;
  std::string text;  ///< one line: whom, and what for
};
[[nodiscard]] OpWait op_wait(const Group& group, std::uint8_t lane, const ring::ShardStatus& status,
                             TimeNs now);
/// For `gradwire ops`.
[[nodiscard]] nlohmann::json op_json(const Group& group, std::uint8_t lane, const OpWait& wait,
                                     const ring::ShardStatus& status, TimeNs now);

}  // namespace gradwire::group
