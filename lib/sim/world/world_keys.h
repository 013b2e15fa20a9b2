// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Keys of a world's groups whose packets are sealed, as a daemon's control thread has them: by the
/// real schedule (doc/security.md), from secrets of pairs that are drawn, and with generations that
/// may have few packets. And a look at what is sent: all of it sealed, and no nonce used twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>

#include "collective/links/seals.h"
#include "security/link_start.h"
#include "sim/world/group_options.h"

namespace gradwire::sim {

class WorldKeys {
 public:
  explicit WorldKeys(std::uint64_t seed) : seed_(seed) {}

  /// Two of a group's ranks on a lane.
  struct Ends {
    std::uint8_t lane = 0;
    std::uint16_t from = 0;  ///< rank
    std::uint16_t to = 0;
    std::uint64_t from_incarnation = 0;
    std::uint64_t to_incarnation = 0;
  };
  /// Of packets from one to the other, as both know it.
  [[nodiscard]] std::uint64_t token(const GroupOptions& options, const Ends& ends) const;

  /// Of a rank on a lane.
  /// @param ends  from that rank to each other one.
  [[nodiscard]] std::shared_ptr<collective::Seals> make_seals(const GroupOptions& options,
                                                              std::span<const Ends> ends);
  /// What a rank wishes for on a lane.
  [[nodiscard]] security::PacketKey next_key(const GroupOptions& options, std::uint16_t rank,
                                             std::uint8_t lane, const collective::KeyWish& wish);

  /// Looks at what goes out.
  /// @param packet  the UDP payload.
  void look_at(std::span<const std::byte> packet);
  /// Packets of groups that seal theirs: those that were not sealed, and those that had the number
  /// of another packet of their link, and so its nonce.
  [[nodiscard]] std::uint64_t unsealed() const noexcept { return unsealed_; }
  [[nodiscard]] std::uint64_t nonces_reused() const noexcept { return nonces_reused_; }

 private:
  /// Group id, epoch, rank, lane, other rank.
  using Place =
      std::tuple<std::uint64_t, std::uint32_t, std::uint16_t, std::uint8_t, std::uint16_t>;

  [[nodiscard]] security::Secret32 root(const GroupOptions& options, const Ends& ends) const;

  std::uint64_t seed_;
  std::map<Place, std::unique_ptr<security::LinkChains>> chains_;
  std::set<std::uint32_t> tags_;  ///< of groups that seal
  /// By link and number: what was sent under it.
  std::unordered_map<std::uint64_t, std::uint64_t> sealed_;
  std::uint64_t unsealed_ = 0;
  std::uint64_t nonces_reused_ = 0;
};

}  // namespace gradwire::sim
