// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the control plane sends to the lanes and hears from them, and how it makes the groups'
/// plans. The daemon implements it over rte_rings and its ports; tests implement it in memory. The
/// control thread alone calls it, and no call blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/process_layout.h"
#include "base/result.h"
#include "base/types.h"
#include "collective/shapes/owners.h"
#include "collective/shapes/tile_costs.h"
#include "collective/tiles/tile_shares.h"
#include "command/messages.h"
#include "control/formation/paths.h"
#include "control/keys/group_keys.h"
#include "control/keys/join_keys.h"
#include "port/too_big.h"

namespace gradwire::control {

struct PlanRequest {
  GroupKey key;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 1;             ///< with members, as ShardConfig's
  std::uint16_t folding_ranks = 0;      ///< likewise
  std::uint16_t member_count = 1;       ///< likewise
  std::optional<ProcessLayout> layout;  ///< none: every rank has as many
  std::uint8_t lanes = 1;               ///< lanes of the group: at most as many as the daemon has
  std::uint32_t payload_bytes = 0;
  std::uint64_t table_digest = 0;
  std::uint64_t incarnation = 0;
  std::vector<NeighborTokens> tokens;    ///< by lane
  std::vector<NeighborPath> downstream;  ///< as path_of() takes them; none where nranks is 1
  std::vector<NeighborPath> upstream;
  /// The other ranks, if packets go between any two.
  std::vector<PeerPaths> peers;
  std::uint64_t direct_bytes = 0;                             ///< as ShardConfig's
  std::uint64_t two_step_bytes = 0;                           ///< likewise
  std::uint64_t gathered_bytes = 0;                           ///< likewise
  std::uint16_t gathered_ranks = 0;                           ///< likewise
  std::string why_not_direct;                                 ///< as DirectAgreement's
  bool tiles = false;                                         ///< as ShardConfig's
  bool tiles_for_formats_alone = false;                       ///< likewise
  std::shared_ptr<const collective::TileCosts> tile_costs;    ///< likewise
  std::string why_no_tiles;                                   ///< as TileAgreement's
  std::string why_no_formats;                                 ///< likewise
  std::shared_ptr<const collective::TileShares> tile_shares;  ///< as ShardConfig's
  std::uint32_t pairs_max = 0;                                ///< as ShardConfig's; 0: no transfers
  std::uint16_t streams = 1;                                  ///< as ShardConfig's
  std::string why_no_transfers;                               ///< as TransferAgreement's
  bool transfers_alone = false;                               ///< as ShardConfig's
  /// As ShardConfig's.
  std::shared_ptr<const collective::Owners> owners;
  GroupSecurity security;
  security::Sha256 table_hash{};  ///< of what the digest is of, if the mode is not off
  /// If the mode is not off, once they are made; `tokens` and those of `peers` are theirs then.
  std::shared_ptr<GroupKeys> keys;
  TimeNs formation_ns = 0;  ///< for ShardTimeouts: a little longer than the manager's own limit

  [[nodiscard]] bool folds_only() const noexcept { return rank >= nranks; }
  /// What this rank sums of an all-reduce by tiles; 0: its segment of the ring, or nothing.
  [[nodiscard]] double tile_share_percent() const noexcept {
    if (tile_shares == nullptr) return 0;
    return 100 * static_cast<double>(tile_shares->share_of(rank)) /
           static_cast<double>(tile_shares->all());
  }
  /// How many ranks sum ops in two steps, if there are such ops.
  [[nodiscard]] std::uint16_t two_step_owners() const noexcept {
    if (two_step_bytes == 0) return 0;
    return owners == nullptr ? nranks : owners->count();
  }
  /// The largest op in two steps.
  [[nodiscard]] std::uint64_t two_step_op_bytes() const noexcept {
    return two_step_bytes * two_step_owners() / nranks;
  }
};

/// What each packet of the group is longer by, if it is sealed.
[[nodiscard]] inline std::uint32_t seal_bytes(const PlanRequest& wanted) noexcept {
  return wanted.security.mode != security::Mode::kOff ? std::uint32_t{security::kTagBytes} : 0;
}

/// How soon a MAC address is asked for.
enum class Asking : std::uint8_t {
  kAtOnce,
  /// If few questions are open and few were sent lately: a group may have 1,024 ranks, which all
  /// ask for all others. The manager sees to it that users and their groups take turns.
  kInTurn,
  /// Not at all: only whether it is known, or was asked for and may still answer.
  kNotNow,
};
enum class ResolveState : std::uint8_t { kPending, kResolved, kFailed };
struct Resolution {
  ResolveState state = ResolveState::kPending;
  wire::MacAddress mac{};
  std::string error;      ///< kFailed: why it can never work, such as an unsupported address family
  wire::IpAddress hop{};  ///< whose MAC address is requested: the address itself, or a router
  bool asked = false;     ///< kPending: a question is open
};

class LaneControl {
 public:
  virtual ~LaneControl() = default;

  [[nodiscard]] virtual std::uint8_t lanes() const = 0;
  [[nodiscard]] virtual std::span<const LocalAddress> addresses() const = 0;

  /// Puts `request` into the lane's ring. It stays the manager's object, and comes back in a
  /// kRequestDone notice.
  /// @return false if the ring is full: the manager tries again.
  [[nodiscard]] virtual bool send(std::uint8_t lane, command::Request* request) = 0;
  /// @return whether there was a notice.
  [[nodiscard]] virtual bool next_notice(command::Notice& out) = 0;

  /// Starts to find the MAC address of `ip` on `port`, or reports the progress. The manager calls
  /// it again while the result is kPending. ARP requests are repeated without limit; the manager
  /// has a time limit.
  [[nodiscard]] virtual Resolution resolve(std::uint16_t port, const wire::IpAddress& ip,
                                           Asking asking) = 0;

  /// The MAC address that frames for `ip` go to now, if it is known.
  [[nodiscard]] virtual std::optional<wire::MacAddress> mac_of(
      std::uint16_t /*port*/, const wire::IpAddress& /*ip*/) const {
    return std::nullopt;
  }

  /// What a router said last of packets to `ip` that were too large for its next link.
  [[nodiscard]] virtual std::optional<port::TooBig> too_big(std::uint16_t /*port*/,
                                                            const wire::IpAddress& /*ip*/) const {
    return std::nullopt;
  }

  /// Makes the plan of group `handle` with `request.lanes` shards: frame templates, mempools,
  /// backends. The manager fills member_clients.
  [[nodiscard]] virtual Result<command::GroupPlan*> create_plan(std::uint64_t handle,
                                                                const PlanRequest& request) = 0;
  /// Destroys a plan that no lane refers to.
  virtual void destroy_plan(command::GroupPlan* plan) = 0;
};

}  // namespace gradwire::control
