// SPDX-License-Identifier: BSD-3-Clause
// How much gradient memory a client, and all clients of a user, may have.
#include <fmt/format.h>

#include <algorithm>

#include "control/memory/memories.h"

namespace gradwire::control {
namespace {

/// One for each client that may still come, up to this many and to a 16th of all.
constexpr std::uint64_t kQueuePagesKept = 16;

}  // namespace

Result<void> Memories::room_for(const Client& client, std::uint64_t bytes) const {
  const auto let_go = letting_go_.find(client.peer.uid);
  std::uint64_t of_user = let_go == letting_go_.end() ? 0 : let_go->second;
  std::uint64_t unreserved = 0;  // asked for, and not taken from the host's pages yet
  for (const auto& [id, other] : clients_.all()) {
    if (other->peer.uid == client.peer.uid) of_user += other->memory_bytes();
    for (const std::uint32_t handle : other->to_make) {
      unreserved += other->memories.at(handle).bytes();
    }
  }
  const auto pool =
      memory_.is_on_gpu() || !options_.hugepages ? std::nullopt : options_.hugepages();
  const auto in_pages = [&](std::uint64_t size) {
    return pool ? (size + pool->page_bytes - 1) / pool->page_bytes * pool->page_bytes : size;
  };
  const std::uint64_t wanted = in_pages(bytes);
  std::uint64_t limit = options_.limits.bytes_per_user;
  const bool is_auto = limit == 0;
  if (is_auto && pool) limit = defaults::user_share(pool->pages) * pool->page_bytes;
  if (limit != 0 && (of_user > limit || wanted > limit - of_user)) {
    return fail(
        ErrorCode::kResourceExhausted,
        fmt::format("{} bytes of gradient memory were asked for, and all clients of user {} have "
                    "{} of the user's {} already (limits.user_memory_mib{}): free some, or raise "
                    "limits.user_memory_mib in the daemon's configuration{}",
                    wanted, client.peer.uid, of_user, limit,
                    is_auto ? " = auto: three quarters of the host's hugepages" : "",
                    is_auto ? ", or reserve more hugepages" : ""));
  }
  if (!pool) return {};
  const std::uint64_t kept = std::min(kQueuePagesKept, pool->pages / 16) * pool->page_bytes;
  const std::uint64_t free = pool->free_pages * pool->page_bytes;
  if (unreserved + wanted + kept <= free) return {};
  return fail(
      ErrorCode::kResourceExhausted,
      fmt::format("{} bytes of gradient memory were asked for, and the host has {} bytes "
                  "of free hugepages, of which {} are kept for the command queues of "
                  "clients to come{}: reserve more (vm.nr_hugepages, or the node's "
                  "nr_hugepages)",
                  wanted, free, kept,
                  unreserved == 0 ? std::string()
                                  : fmt::format(" and {} are asked for already", unreserved)));
}

Result<void> Memories::check_quota(std::uint64_t used, std::uint64_t bytes) const {
  const std::uint64_t limit = options_.limits.bytes_per_client;
  if (used + bytes <= limit) return {};
  return fail(ErrorCode::kResourceExhausted,
              fmt::format("{} bytes of gradient memory in whole pages were asked for, and the "
                          "client has {} of its {} left: free some, or raise "
                          "limits.client_memory_mib in the daemon's configuration",
                          bytes, limit - used, limit));
}

}  // namespace gradwire::control
