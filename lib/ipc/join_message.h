// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The body of a kJoin request: a JoinRequest, a RankInfo for each rank, and for each process the
/// rank that it belongs to, if the request has processes; then what the job wants of its packets,
/// if the request says that it wants something. Up to what a message holds it travels in the
/// message; beyond that in a sealed memfd that comes with an empty message. Neither end trusts a
/// length or a count. A memfd is copied out first, so that what was checked cannot change. Any
/// thread; it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "ipc/control_messages.h"
#include "ipc/message_socket.h"
#include "ipc/unique_fd.h"

namespace gradwire::ipc {

struct JoinRequest {
  std::uint64_t group_id = 0;
  std::uint32_t epoch = 0;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 0;
  std::uint16_t member = 0;        ///< 0 ... member_count-1: order of summation within the rank
  std::uint16_t member_count = 1;  ///< of this rank; if `processes` is 0, of every rank; of one
                                   ///< without members that of rank 0
  std::uint32_t timeout_ms = 0;    ///< for the whole formation; 0 = the daemon's own
  /// In the group. 0: they are numbered rank x member_count + member. A rank's members are its
  /// processes in order of their numbers.
  std::uint32_t processes = 0;
  /// So many of the last ranks have no members. One client joins at each, as member 0.
  std::uint16_t folding_ranks = 0;
  std::uint16_t flags = 0;  ///< kHasWants, kTransfersAlone

  static constexpr std::uint16_t kHasWants = 1;        ///< a JoinWants is the body's end
  static constexpr std::uint16_t kTransfersAlone = 2;  ///< the group has sends and receives alone

  [[nodiscard]] bool has_wants() const noexcept { return (flags & kHasWants) != 0; }
  [[nodiscard]] bool transfers_alone() const noexcept { return (flags & kTransfersAlone) != 0; }

  /// Ranks with members.
  [[nodiscard]] std::uint16_t ring_ranks() const noexcept {
    return static_cast<std::uint16_t>(nranks - folding_ranks);
  }
  [[nodiscard]] bool folds_only() const noexcept { return rank >= ring_ranks(); }
};
static_assert(sizeof(JoinRequest) == 32);

/// What the rank's entry in the table has to say. Without it: the daemon's mode, and no job's key.
struct JoinWants {
  WantedMode mode = WantedMode::kDaemons;
  std::uint32_t reserved = 0;
  JobKeyId job{};  ///< of the job's key; zeros: it has none
  friend bool operator==(const JoinWants&, const JoinWants&) = default;
};
static_assert(sizeof(JoinWants) == 16);

/// The largest body.
inline constexpr std::size_t kMaxJoinBytes = sizeof(JoinRequest) + kMaxRanks * sizeof(RankInfo) +
                                             kMaxProcesses * sizeof(std::uint16_t) +
                                             sizeof(JoinWants);

struct JoinBody {
  JoinRequest request;
  std::vector<RankInfo> table;       ///< [request.nranks]
  std::vector<std::uint16_t> ranks;  ///< [request.processes]: the rank of each
  JoinWants wants;
};
/// Checks nranks, processes and wants against their bounds and the body's size; the entries are not
/// looked at.
[[nodiscard]] Result<JoinBody> parse_join(std::span<const std::byte> body);
/// Reads the body of a message, from the message or from its memfd.
[[nodiscard]] Result<JoinBody> parse_join(const Message& message);

/// `request.nranks`, `processes` and kHasWants are set from `table`, `ranks` and `wants`.
[[nodiscard]] std::vector<std::byte> encode_join(JoinRequest request,
                                                 std::span<const RankInfo> table,
                                                 std::span<const std::uint16_t> ranks = {},
                                                 const JoinWants& wants = {});

/// Whether a body has to travel in a memfd.
[[nodiscard]] constexpr bool is_long(std::span<const std::byte> body) noexcept {
  return body.size() > kMaxMessageBytes - sizeof(MessageHeader);
}
/// A sealed memfd with `body`. @return kSystem if the kernel gives none.
[[nodiscard]] Result<UniqueFd> to_memfd(std::span<const std::byte> body);
/// A copy of what a memfd holds.
/// @return kInvalidArgument if `fd` is no sealed memfd, or has more than `most_bytes`.
[[nodiscard]] Result<std::vector<std::byte>> from_memfd(int fd, std::size_t most_bytes);

}  // namespace gradwire::ipc
